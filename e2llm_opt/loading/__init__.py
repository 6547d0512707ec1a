"""From a file to a Problem: the only place that knows people's units, YAML and pydantic."""
