"""Fitting: the photos to adapt the model to, and in words what that changed; training does the rest."""
