"""What each loss of a device, host, switch or link does to a plan, and what is best then."""
