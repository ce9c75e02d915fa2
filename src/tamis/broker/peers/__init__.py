"""Links to other brokers: connections, what passes them, and the overlay that they form."""
