"""Backends: targets of backendRefs, their endpoints and protocols, and the routes that lead to them."""
