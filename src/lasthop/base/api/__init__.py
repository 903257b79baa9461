"""Declares the Kubernetes and Gateway API objects that users write, as frozen structs.

Only fields that Lasthop reads are declared; a change to any other field compares equal and triggers no recomputation.
"""
