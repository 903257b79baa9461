"""`lasthop`: the commands. Each is imported only when it is called, so that the CLI starts quickly."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import Any, Final

import click

from lasthop.base import gc_pause
from lasthop.base.text import terminal
from lasthop.base.text.printable import printable
from lasthop.base.text.suggestions import closest

COMMANDS: Final = {
    "init": "Create a folder with a minimal working configuration.",
    "import": "Import the configuration of another gateway.",
    "judge": "Test how any Gateway API implementation verifies its backends.",
    "check": "Find problems in a folder or a cluster.",
    "run": "Run a gateway for a backend (--to URL), or on a folder of YAML files.",
    "stop": "End a gateway of this machine, or proxies that a killed gateway left.",
    "proxy": "Run the proxy of one Gateway in a Pod (started by Lasthop).",
    "install": "Install Lasthop into a cluster, or print the manifests.",
    "controller": "Run the control plane of a cluster.",
    "status": "Show the status of objects of a running gateway or a cluster.",
    "explain": "Explain what applies to an object, and why.",
    "audit": "Show how each backend is verified, and which certificates expire soon.",
    "tap": "Show the requests of a running gateway as they come in.",
    "top": "Show rate, errors and latency of a running gateway or a cluster, by route and by backend.",
    "probe": "Test the TLS connection to a backend, check by check.",
    "dashboard": "Open the page that shows every backend connection.",
    "pin": "Show a backend's certificate and print a PinSet for it.",
    "config": "Show Envoy's actual configuration: clusters, routes, listeners, certificates.",
    "log-level": "Show or set the log levels of a running gateway and its Envoys.",
    "ps": "List the gateways of this machine, by folder.",
    "doctor": "Check the requirements of Lasthop on this machine or in a cluster.",
    "bundle": "Collect data for support into an archive, without secrets.",
    "version": "Show the versions of Lasthop, Envoy and Gateway API.",
    "schema": "Print a JSON Schema of the objects, for editors.",
    "completion": "Print the script for shell completion.",
}


PACKAGES: Final = {"import": "lasthop_import.command.cli", "judge": "lasthop_judge.command.cli"}
"""Modules of commands that are separate packages; nothing else in Lasthop needs them."""
FOREIGN_COMMANDS: Final = {
    "get": "status",
    "list": "status",
    "ls": "ps",
    "describe": "explain",
    "validate": "check",
    "lint": "check",
    "start": "run",
    "serve": "run",
    "up": "run",
    "down": "stop",
    "kill": "stop",
    "logs": "tap",
    "tail": "tap",
    "metrics": "top",
    "restart": "run --replace",
    "reload": "run --replace",
    "config_dump": "config dump",
    "proxy-status": "ps",
    "proxy-config": "config",
    "analyze": "check",
    "routes": "status httproute",
    "btls": "status backendtlspolicy",
    "policy": "status backendtlspolicy",
    "policies": "status backendtlspolicy",
    "reverse-proxy": "run",
}
"""Maps commands of other tools to the equivalent here."""
KUBECTL_WRITE_COMMANDS: Final = ("apply", "create", "delete", "edit", "patch", "replace")
"""Commands of kubectl that change objects; Lasthop has no equivalent."""


DISK_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a full or failing disk, which are reported without a traceback. click ends quietly on a closed pipe."""


class Commands(click.Group):
    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Adapts to the terminal before the first output. Outside a terminal, click omits colours even if they are allowed."""
        terminal.adapt()
        colours = None if terminal.colours_allowed() else False
        return super().make_context(info_name, args, parent, **{"color": colours, **extra})

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = PACKAGES.get(name, f"lasthop.cli.commands.{name.replace('-', '_')}")
        with gc_pause.frozen(), without_system_cas():  # imported modules stay; scanning them takes time
            command: click.Command = importlib.import_module(module).command
        return command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if ctx.resilient_parsing and name not in COMMANDS:
            return None, None, []  # completion shows no message
        if name == "help":
            if args[1:]:
                return self.resolve_command(ctx, [args[1], "--help"])
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        if name in FOREIGN_COMMANDS:
            ctx.fail(
                f"there is no command {name}; use: {' '.join((ctx.info_name or 'lasthop', FOREIGN_COMMANDS[name], *args[1:]))}"
            )
        if name == "diff":
            past = "for past changes: lasthop audit --since 24h"
            ctx.fail(f"there is no command diff; use: lasthop check DIR --against HEAD; {past}")
        if name in KUBECTL_WRITE_COMMANDS:
            ctx.fail(
                f"there is no command {name}: objects are changed by saving their file in the folder that lasthop run "
                f"watches, in a cluster by kubectl {name}"
            )
        if name not in COMMANDS and (close := closest(name, COMMANDS)):
            ctx.fail(f"there is no command {name}; did you mean {close}?")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Makes errors printable: they may quote untrusted text. Reports a missing permission without a traceback."""
        try:
            return super().invoke(ctx)
        except PermissionError as error:
            if error.filename is None:
                raise
            raise click.ClickException(printable(f"{os.fsdecode(error.filename)} may not be used: {error.strerror}")) from None
        except FileNotFoundError:
            if _has_folder():
                raise
            raise click.ClickException("the current folder was removed; change to another one") from None
        except click.ClickException as error:
            vars(error)["message"] = printable(error.message)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lasthop", prog_name="lasthop")
def main() -> None:
    """A Gateway API implementation that verifies the last hop: the connection from the gateway to a backend with a
    BackendTLSPolicy is verified as the policy requires, or it fails; it never falls back to plaintext. Backends without a
    policy use plaintext, as the Gateway API specifies, unless a GatewayProfile denies it; `lasthop audit` lists them.

    \b
    Try it, no cluster needed:
      lasthop run --to https://127.0.0.1:8443 --ca ca.pem   a gateway for your backend, verified, in one command
      lasthop init demo --to https://api.example.com        the same as a folder of YAML
      lasthop check demo                                    find problems in it
      lasthop run demo                                      run a gateway; edits take effect when saved
      lasthop status                                        the status of its Gateways, routes and policies
      lasthop explain httproute backend                     where a request goes, and why it fails
      lasthop tap                                           its requests, live
      lasthop audit demo                                    how each backend is verified
      lasthop probe backend --dir demo                      test that against the real backend
    """


def run(name: str | None = None) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # see `lasthop.cli`
    try:
        main(prog_name=name)
    except OSError as error:
        if error.errno not in DISK_ERRNOS or error.filename is not None:
            raise
        click.echo(f"Error: {_where_full(error)} cannot be written: {error.strerror}", err=True)
        sys.exit(1)
    finally:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C, while Python ends, prints no traceback either


@contextlib.contextmanager
def without_system_cas() -> Iterator[None]:
    """Makes the import of aiohttp faster, by a tenth of a controller's start. aiohttp creates two TLS contexts with the
    system's CAs, which nothing here uses, because each connection has its own context. OpenSSL reads the CAs from the file in
    this variable. A connection with one of those contexts would trust no CA, and fail."""
    before = os.environ.get("SSL_CERT_FILE")
    os.environ["SSL_CERT_FILE"] = os.devnull
    try:
        yield
    finally:
        if before is None:
            del os.environ["SSL_CERT_FILE"]
        else:
            os.environ["SSL_CERT_FILE"] = before


def _has_folder() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _where_full(error: OSError) -> str:
    import traceback

    if not any(frame.f_code is click.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__)):
        return "a file (lasthop doctor looks for full disks)"
    # Flushing the rest of its buffer at exit would fail again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return "the output"


def plugin() -> None:
    """Runs as a plugin of kubectl, which finds the executable `kubectl-lasthop`: a cluster has precedence over local
    gateways."""
    run("kubectl lasthop")


if __name__ == "__main__":
    run()
