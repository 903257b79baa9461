"""The audit report: how every backend is connected and verified."""
