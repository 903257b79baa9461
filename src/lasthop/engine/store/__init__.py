"""What we know now: the objects, their indexes, and the query graph that keeps every answer up to date."""
