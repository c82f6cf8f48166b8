"""Errors of the service package.

ServiceError
├── RequestError (ValueError)        a request cannot be answered as it was asked
└── CalibrationRecordError (ValueError)  a stored calibration is missing or damaged
"""

from __future__ import annotations

__all__ = ["CalibrationRecordError", "RequestError", "ServiceError"]


class ServiceError(Exception):
    """Root of the package's errors."""


class RequestError(ServiceError, ValueError):
    """A request cannot be answered as it was asked."""


class CalibrationRecordError(ServiceError, ValueError):
    """A stored calibration is missing or damaged."""
