"""Podium's entry in the configuration of MCP clients: where it stands, how it reads.

Knows nothing of running Podium; only the commands `install`, `uninstall` and `doctor` use it.
"""
