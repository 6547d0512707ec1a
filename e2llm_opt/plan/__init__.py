"""The answer: a plan, or the reason why there is none."""
