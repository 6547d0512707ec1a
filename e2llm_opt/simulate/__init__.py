"""A plan run on arrivals, event by event: the second opinion on every analytical waiting time."""
