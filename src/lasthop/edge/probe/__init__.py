"""Performs a gateway's TLS handshake with a backend, and reports the result check by check."""
