"""Findings: problems of objects, grouped by root cause, with remedies."""
