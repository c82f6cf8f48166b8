"""Commands that make model bundles."""
