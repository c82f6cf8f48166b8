"""HTTP routes, one module a part of the API."""

from service.routes import galleries, jobs, operations, page, search

__all__ = ["galleries", "jobs", "operations", "page", "search"]
