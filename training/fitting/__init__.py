"""Fitting: adapt the model to photos of one's own, and measure what that changed.

photos -> those that can be used, and the ones that are held out; plan -> views and steps that fit into the
minutes; run -> the two trainings; trial -> figures of the held-out labels for the first of them.
"""
