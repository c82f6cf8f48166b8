"""Reports: pages, charts and texts for people."""
