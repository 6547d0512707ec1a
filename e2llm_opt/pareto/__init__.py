"""Many plans instead of one: none of them is better than another in everything."""
