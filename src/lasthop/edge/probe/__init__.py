"""Makes the TLS handshake of a gateway with a backend, and judges it check by check."""
