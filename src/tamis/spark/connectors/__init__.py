"""Where a stream comes from and goes to: folders, functions, Tamis brokers."""
