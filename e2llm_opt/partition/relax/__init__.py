"""What no cut can beat: the inner problem with the order of the devices left out."""
