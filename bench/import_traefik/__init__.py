"""Compares a real Traefik with the result of `lasthop import traefik`."""
