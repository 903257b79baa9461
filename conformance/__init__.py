"""`make conformance`: the official Gateway API suite against a real Kubernetes API server, without a container runtime."""
