"""Serves configuration to Envoys by xDS, and exchanges reports with proxies and other replicas."""
