"""Learning and measuring. The server works with this package deleted."""
