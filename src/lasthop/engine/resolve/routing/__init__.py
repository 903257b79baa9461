"""Routes: attachment, hostnames, matches, filters, and what in them cannot be served."""
