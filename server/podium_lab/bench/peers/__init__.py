"""Other engines at the same work: their environment, and the scripts that run in it."""
