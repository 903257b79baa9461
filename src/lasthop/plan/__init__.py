"""The answer: frozen values that know neither Kubernetes nor Envoy."""
