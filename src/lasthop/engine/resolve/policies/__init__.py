"""Policies: where they attach and what they ask for."""
