"""Matcher: answers a query, with the threshold applied."""
