"""Files of local models: which there are, where each comes from, and what it says of itself."""
