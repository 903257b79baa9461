"""Envoy's configuration: one file per xDS type."""
