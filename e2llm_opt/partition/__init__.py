"""The inner problem: cut the layers over one set of devices."""
