from __future__ import annotations

import pytest

from lasthop.base.text.suggestions import meant


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("htps", "https"),
        ("httpss", "https"),
        ("htpts", "https"),
        ("https", ""),
        ("backed", "backend"),
        ("grpc", ""),
        ("h", ""),
        ("", ""),
    ],
)
def test_a_name_that_differs_in_one_place_is_probably_meant(name: str, expected: str) -> None:
    assert meant(name, ["metrics", "https", "backend"]) == expected


def test_the_nearest_one_is_taken() -> None:
    assert meant("web-1", ["web-12", "web-345", "web-11"]) == "web-11"
