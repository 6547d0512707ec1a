"""What the user owns: devices, links and the network they form."""
