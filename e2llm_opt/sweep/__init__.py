"""Many questions at once: a grid of problems, planned by many workers into one table."""
