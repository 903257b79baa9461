"""The current state: the objects, their indexes, and the query graph that keeps every result up to date."""
