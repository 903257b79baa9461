"""The share of logged requests, as a dialogue: the number of lines, and the resulting share."""

from __future__ import annotations

import random

from lasthop.edge.proxy.observer import ALL, LogShare


def settled(rate: float, share: LogShare, seconds: int = 60) -> float:
    """How many lines a second there are in the end, of so many requests a second."""
    for _ in range(seconds):
        share.adjust(round(rate * share.value / ALL), 1.0)
    return rate * share.value / ALL


def test_everything_is_logged_while_there_is_little() -> None:
    share = LogShare("key", 100.0)
    assert settled(140.0, share) == 140.0 and share.value == ALL


def test_a_share_of_a_flood_is_logged() -> None:
    for rate in (200.0, 1_000.0, 50_000.0, 1_000_000.0):
        assert 60 <= settled(rate, LogShare("key", 100.0)) <= 160, rate


def test_it_becomes_everything_again() -> None:
    share = LogShare("key", 100.0)
    settled(10_000.0, share)
    assert share.value < ALL / 50
    settled(10.0, share)
    assert share.value == ALL


def test_after_silence_it_takes_some_steps_so_that_a_burst_is_not_logged_whole() -> None:
    share = LogShare("key", 100.0)
    settled(100_000.0, share)
    share.adjust(0, 1.0)
    assert share.value <= ALL / 100


def test_a_short_burst_is_logged_whole() -> None:
    share = LogShare("key", 100.0)
    assert not share.adjust(400, 1.0) and share.value == ALL
    assert share.adjust(1_001, 1.0)


def test_lines_stand_for_the_share_that_held_when_they_were_written() -> None:
    share, now, requests, estimate = LogShare("key", 100.0), 0.0, 0, 0.0
    share.applied(now)
    coin = random.Random(1)
    for second in range(100):
        rate = 50 if second % 20 < 10 else 5_000
        applied, late = share.value, now + 0.5
        lines = sum(coin.random() < applied / ALL for _ in range(rate))
        requests += rate
        estimate += lines * share.weight(late)
        now += 1.0
        if share.adjust(lines, 1.0):
            share.applied(now)
    assert abs(estimate - requests) / requests < 0.05
