"""Choices: what a request or a command may ask for by name, without what carries it out."""

from __future__ import annotations

from typing import Literal

RefineChoice = Literal["auto", "off", "gallery", "query", "both"]
RerankChoice = Literal["auto", "off", "contextual", "k_reciprocal"]
GroupChoice = Literal["auto", "max", "mean", "lme", "vote", "share", "learned"]
