"""Image files and their pixels: which files are a person's own, and how any pixels become 8-bit RGB."""
