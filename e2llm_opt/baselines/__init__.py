"""Plans that other planners would make, as seeds and for comparison."""
