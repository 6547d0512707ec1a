"""The E2LLM paper's own partitioner, for comparison: one order of the devices, every master."""
