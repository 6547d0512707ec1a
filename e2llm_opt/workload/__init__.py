"""What is asked: request rate, lengths and service levels."""
