"""Known devices, models, weight formats and runtimes, each with its source."""
