"""Records of calibrations, and which one is in force."""
