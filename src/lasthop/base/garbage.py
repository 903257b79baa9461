"""Keeps Python from looking for garbage where everything that is made stays."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def not_collected() -> Iterator[None]:
    """Looks for no garbage meanwhile, which would be a third of the time, in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def kept() -> Iterator[None]:
    """Does the same, and never looks through what is there in the end: for what stays as long as the process does."""
    with not_collected():
        yield
        gc.freeze()
