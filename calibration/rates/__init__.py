"""Error rates with their intervals, and what is promised by them."""
