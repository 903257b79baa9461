"""Policies: their targets, their validity and their conditions."""
