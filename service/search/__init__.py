"""Search: from a query to scored, decided candidates."""
