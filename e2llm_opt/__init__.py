"""Placement of large language models on unequal machines."""

__version__ = "0.1.0"
