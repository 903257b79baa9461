"""Measures the cost of the data plane: Envoy with Lasthop's configuration, beside other proxies that do the same work."""
