"""Compositions and long-lived tasks: the controller, its fleet of proxies, and how both run on a host or in a cluster."""
