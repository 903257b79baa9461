"""Adapters to one protocol each (files, API server, xDS, Envoy's process, TLS probes), independent of each other."""
