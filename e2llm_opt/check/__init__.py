"""The second opinion: a plan recomputed from the design page alone."""
