"""HTTP routes, one module a part of the API."""

from service.routes import galleries, items, jobs, operations, page, search

__all__ = ["galleries", "items", "jobs", "operations", "page", "search"]
