"""Bodies of requests and answers of the HTTP API."""
