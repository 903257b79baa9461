"""Findings: what is not as its author wants it, what follows from what, and what to do about it."""
