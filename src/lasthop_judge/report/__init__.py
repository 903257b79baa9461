"""Renders what a run has found; nothing here decides."""
