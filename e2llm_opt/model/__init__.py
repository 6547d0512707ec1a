"""What is served: the model as bytes and FLOPs of each layer."""
