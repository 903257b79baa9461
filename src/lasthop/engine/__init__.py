"""The pure part: objects in; Envoy resources, statuses and findings out. No clock, no sockets, no files."""
