"""The answer as Envoy's configuration: one file for each xDS type."""
