"""Hops: how a Gateway connects to a backend port, its earlier verification, and its observed health."""
