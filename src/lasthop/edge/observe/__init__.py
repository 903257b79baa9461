"""Turns evidence from each proxy into the observed health of each hop."""
