"""Statuses and Events, written to the cluster by the replica that holds the Lease."""
