"""Renders the plan for its readers: Envoy, statuses, findings, audit and explain. All are pure functions and independent of
each other."""
