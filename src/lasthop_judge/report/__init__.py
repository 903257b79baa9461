"""Renders the verdicts of a run. No rendering decides anything."""
