"""Compares a real Traefik with what `lasthop import traefik` says of it."""
