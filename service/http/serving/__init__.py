"""Serving: an application on a port, in one process or several, with limits on connections."""
