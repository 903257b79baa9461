"""What the data plane costs: Envoy with the configuration that Lasthop emits, beside others that do the same work."""
