"""Provides a Gateway's infrastructure: ports and proxies."""
