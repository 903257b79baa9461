"""Applies the rules of the Gateway API to the objects: pure queries over the graph, one file per concept of the spec."""
