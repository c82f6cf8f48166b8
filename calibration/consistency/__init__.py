"""Threshold consistency: how differently classes fare at one threshold."""
