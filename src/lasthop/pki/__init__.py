"""X.509: certificates and private keys as values. Imports nothing else of Lasthop, and no sockets."""
