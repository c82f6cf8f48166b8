"""What a route gets from the application it belongs to."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request

from service.metrics import Metrics
from service.open_galleries import OpenGalleries
from service.settings import Settings

__all__ = ["GalleriesDependency", "MetricsDependency", "SettingsDependency"]


def _galleries(request: Request) -> OpenGalleries:
    galleries: OpenGalleries = request.app.state.galleries
    return galleries


def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


GalleriesDependency = Annotated[OpenGalleries, Depends(_galleries)]
MetricsDependency = Annotated[Metrics, Depends(_metrics)]
SettingsDependency = Annotated[Settings, Depends(_settings)]
