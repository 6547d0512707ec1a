"""The outer problem: who is clustered with whom, in which role."""
