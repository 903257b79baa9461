"""The memory limit of an Envoy."""

from __future__ import annotations

import pytest

from lasthop.edge.proxy.launch import MIN_HEAP, limited_heap

GIB = 1 << 30


@pytest.mark.parametrize(
    ("memory_max", "heap"),
    [
        (f"{GIB}\n", int(0.8 * GIB) >> 20 << 20),
        ("max\n", 4 * GIB),
        ("", 4 * GIB),
        (str(1 << 62), 4 * GIB),
        (str(32 << 20), MIN_HEAP),
    ],
)
def test_a_containers_limit_counts_before_the_machines_memory(memory_max: str, heap: int) -> None:
    assert limited_heap(memory_max, 8 * GIB) == heap
