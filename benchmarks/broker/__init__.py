"""A real broker, measured over the network of one machine."""
