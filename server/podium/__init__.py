"""Podium: a conductor writes a plan for each question and a pool of models carries it out."""

__version__ = "0.1.0"
