"""Measured speeds → efficiencies and layer overheads of devices, shrunk towards their kind's."""
