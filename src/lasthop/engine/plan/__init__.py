"""The plan: frozen values that describe what every Gateway serves and how it connects to each backend. They refer to API
objects by `Key` and know nothing of Envoy."""
