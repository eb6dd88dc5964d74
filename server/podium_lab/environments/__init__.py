"""Makes environments for tools whose requirements clash with Podium's own."""
