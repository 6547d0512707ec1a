"""How long and how much memory: formulas only, no decisions."""
