"""Shared by long-running commands: log options, signals, and the printing of errors."""

from __future__ import annotations

import asyncio
import functools
import signal
from collections.abc import Callable
from typing import Any

import click

from lasthop.base.text import log_levels, logs
from lasthop.cli.args.target import add_options


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options and configures the log before the command runs, which receives the format; empty: the default."""

    @functools.wraps(command)
    def wrapper(log_format: str | None, log_level: str, verbose: bool, **arguments: Any) -> Any:
        logs.configure(log_format or "", "debug" if verbose else log_level)
        return command(log_format=log_format or "", **arguments)

    return add_options(
        wrapper,
        click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug."),
        click.option(
            "--log-level",
            type=click.Choice(log_levels.LASTHOP),
            default="info",
            show_default=True,
            help="Minimum level to log.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            help="Format of the log and of failed requests.  [default: text on a terminal, json elsewhere]",
        ),
    )


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
