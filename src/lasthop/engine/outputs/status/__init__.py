"""The answer as the objects' status."""
