"""Compositions and long-lived tasks: the controller, its fleet of proxies, and their start on a host or in a cluster."""
