"""Renders the statuses of objects."""
