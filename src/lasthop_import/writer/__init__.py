"""Writes what was imported as objects: one writer for all systems."""
