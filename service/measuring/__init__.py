"""Measuring: what a threshold is worth, by labelled queries."""
