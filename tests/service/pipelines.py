"""Pipelines that tests of several modules score with."""

from __future__ import annotations

from vicinal.service.search.pipeline import Pipeline, Rerank

CONTEXTUAL = Pipeline(rerank=Rerank(method="contextual"))
