"""Reads standard input, which who starts a command may have closed."""

from __future__ import annotations

import sys

import click


def read_stdin(limit: int = -1) -> bytes:
    """Returns its content, or that many bytes of it."""
    # Python has no object for a stream that was closed when it started.
    if sys.stdin is None:
        raise click.ClickException("standard input is closed")
    return sys.stdin.buffer.read(limit)
