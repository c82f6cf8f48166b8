"""Jobs: long work beside the searches, that survives the death of whoever does it."""
