"""Open bundles and galleries of a process, uploads, maintenance, looks at what others changed."""
