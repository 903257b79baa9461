"""What long-running commands share: how signals stop them, and how their errors are printed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import click


def on_signals(stop: Callable[[], None]) -> None:
    """Calls `stop` at each Ctrl-C and SIGTERM, instead of ending the process."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)


def first_error(group: BaseExceptionGroup[Exception]) -> click.ClickException:
    """Returns the first error of a group of tasks, to be printed without a traceback."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return click.ClickException(str(error))
