"""Queues of requests, and of replicas by their next event."""
