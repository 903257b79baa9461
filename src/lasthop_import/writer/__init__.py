"""Writes the imported model as objects: one writer for all systems."""
