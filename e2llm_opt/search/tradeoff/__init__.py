"""Many objectives at once: the plans of which none is better than another in all of them."""
