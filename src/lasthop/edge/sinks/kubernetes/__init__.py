"""Writes statuses and Events to the cluster, from the replica that holds the Lease."""
