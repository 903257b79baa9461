"""Compares Lasthop's controller and Envoy Gateway's on one API server: the same objects, the same edits, in turn."""
