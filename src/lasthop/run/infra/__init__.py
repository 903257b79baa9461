"""Provides what a Gateway needs to exist: ports and proxies."""
