"""Writes results to the cluster or to proxies."""
