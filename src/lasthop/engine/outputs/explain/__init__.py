"""`lasthop explain`: renders the recorded reads of the query graph as a tree."""
