"""Serves the admin address: health, metrics, status, and the admin page."""
