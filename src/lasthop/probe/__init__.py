"""A gateway's handshake with a backend, made by Lasthop itself and judged check by check."""
