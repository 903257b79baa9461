"""Renders the verdicts of a run. The renderers decide nothing."""
