"""The E2LLM paper's own search, for comparison: two chromosomes, Eq. 4, PREFILL and DECODE."""
