"""HTTP routes, one module a part of the API."""

from vicinal.service.http.routes import galleries, items, jobs, operations, page, search

__all__ = ["galleries", "items", "jobs", "operations", "page", "search"]
