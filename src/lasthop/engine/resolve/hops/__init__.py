"""Hops: how a Gateway connects to a backend port, how it was verified before, what was observed."""
