"""One module a source: what its output says of devices and links."""
