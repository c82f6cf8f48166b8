"""Fitting: adapt the model to photos of one's own, and say what that changed.

photos -> which photos and labels there are, and which are held out; plan -> how many views and steps fit into
the minutes; run -> the two trainings (need the `train` extra); trial -> what the held-out labels say of the
first of them; report -> what changed, in figures and words.
"""
