"""Tasks: what a job or a command does."""
