"""Options of the commands that run for long: how much they log, and in which form."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from lasthop.run import logs


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options and configures the log before the command runs; it is told the format, empty if none was given."""

    @functools.wraps(command)
    def called(log_format: str | None, log_level: str, verbose: bool, **others: Any) -> Any:
        logs.configure(log_format or "", "debug" if verbose else log_level)
        return command(log_format=log_format or "", **others)

    for option in (
        click.option("-v", "--verbose", is_flag=True, help="The same as --log-level debug."),
        click.option(
            "--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True, help="Minimum level to log."
        ),
        click.option(
            "--log-format",
            type=click.Choice(logs.FORMATS),
            help="Format of the log and of failed requests.  [default: text on a terminal, json elsewhere]",
        ),
    ):
        called = option(called)
    return called
