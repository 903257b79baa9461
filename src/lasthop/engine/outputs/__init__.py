"""The answer, told to someone: Envoy, the objects' status, an auditor. Pure functions; siblings know nothing of each other."""
