"""A plan for people to look at."""
