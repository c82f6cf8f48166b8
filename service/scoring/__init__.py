"""Scoring: what a pipeline is, and the scores of candidates and groups."""
