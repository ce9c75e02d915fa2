"""Two checkouts of Tamis side by side, on the same inputs."""
