"""Reads counters."""

from __future__ import annotations

from prometheus_client import Counter


def counts(counter: Counter) -> dict[str, float]:
    """Returns the nonzero counters, by label values."""
    samples = (sample for family in counter.collect() for sample in family.samples if sample.name.endswith("_total"))
    return {"/".join(sample.labels.values()): sample.value for sample in samples if sample.value}


def count(counter: Counter, *labels: str) -> float:
    return counts(counter).get("/".join(labels), 0.0)
