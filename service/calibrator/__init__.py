"""Calibrator: a calibration record of labelled queries."""
