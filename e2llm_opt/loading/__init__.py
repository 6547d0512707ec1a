"""From a file to validated objects."""
