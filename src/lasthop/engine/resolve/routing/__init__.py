"""Routes: attachment, hostnames, matches, filters, and their errors."""
