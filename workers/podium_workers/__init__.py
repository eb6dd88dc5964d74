"""The pool: every way Podium reaches a model. Knows nothing of plans, MCP or storage."""
