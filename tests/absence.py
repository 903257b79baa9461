"""Skips or fails a test whose requirements this machine lacks."""

from __future__ import annotations

from typing import NoReturn

import pytest

from tools import programs


def absent(text: str) -> NoReturn:
    """Skips the test, except in CI, which must run every test: there it fails."""
    if programs.in_ci():
        pytest.fail(text, pytrace=False)
    pytest.skip(text)
