"""Commands and files that start real engines as a plan says, or the reason why they cannot."""
