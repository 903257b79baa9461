"""Backends: what a backendRef names, its endpoints and protocol, and which routes lead to it."""
