"""Galleries elsewhere: under other names, as copies, as archives and as tables."""
