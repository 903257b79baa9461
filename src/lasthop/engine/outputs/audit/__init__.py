"""The answer as a report: how every backend is connected and verified."""
