"""What the objects mean. Pure queries over the graph, one file for each concept of the spec."""
