"""HTTP routes, one module a part of the API."""

from service.routes import galleries, operations, page, search

__all__ = ["galleries", "operations", "page", "search"]
