"""The engine benchmark."""
