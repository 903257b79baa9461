"""The engine: computes Envoy resources, statuses and findings from objects. It uses no clock, sockets or files."""
