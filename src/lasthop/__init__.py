"""Lasthop: a Gateway API implementation whose whole point is the hop from the gateway to the backend."""
