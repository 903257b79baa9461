"""Connects to the API server: configuration, a client, its JSON as typed objects, and the Lease."""
