"""Metadata of a gallery's items: which keys there are."""

from __future__ import annotations

from fastapi import APIRouter

from vicinal.service.http.gate import SearchRoute

router = APIRouter(prefix="/v1/galleries/{gallery}", tags=["items"], route_class=SearchRoute)
