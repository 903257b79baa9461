"""Reads and issues X.509 certificates and keys, as values. Imports nothing else of Lasthop, and no sockets."""
