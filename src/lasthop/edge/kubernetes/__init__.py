"""The API server: how to reach it, a client, its JSON as typed objects, and the Lease."""
