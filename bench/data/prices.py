"""Measures the cost of each setting that Lasthop emits, in instructions per request, which have little noise: `python -m
bench.data.prices`.

Envoy runs under valgrind (callgrind) with the configuration that Lasthop emits, and again without one of its settings: the
difference is its price. Beside these, the hand-tuned configuration and Envoy Gateway's. It counts the user-space instructions
of the thread that handles requests, over open connections. `--kind close` opens a new connection to the backend for each
request, `--large` uses responses of 1 MiB.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import click

from bench.data.emitted import Json, connection_managers
from bench.data.envoy_gateway import envoy_gateway
from bench.data.install import installed
from bench.data.places import Places, host, places
from bench.data.sides import configured, envoy_command
from bench.data.tuned import tuned
from bench.instructions import Paused, counted_instructions
from bench.processes import free_port
from lasthop.engine.outputs.envoy.access_log import SAMPLES_SHARE

CLIENTS = 4
READY_WITHIN = 120.0
VALGRIND = ["valgrind", "--quiet", "--tool=callgrind", "--separate-threads=yes", "--instr-atstart=no"]
EMITTED = "as emitted"


class Setting(NamedTuple):
    name: str
    without: Callable[[Json], None]
    """Takes it out of a bootstrap."""


def _managers(*fields: str) -> Callable[[Json], None]:
    def without(config: Json) -> None:
        for manager in connection_managers(config):
            for field in fields:
                manager.pop(field, None)

    return without


def _clusters(*fields: str) -> Callable[[Json], None]:
    def without(config: Json) -> None:
        for cluster in config["static_resources"]["clusters"]:
            for field in fields:
                cluster.pop(field, None)

    return without


def _no_stats(config: Json) -> None:
    config["stats_config"] = {"stats_matcher": {"reject_all": True}}


def _no_log(number: int) -> Callable[[Json], None]:
    def without(config: Json) -> None:
        for manager in connection_managers(config):
            del manager["access_log"][number]

    return without


def _router_only(config: Json) -> None:
    for manager in connection_managers(config):
        manager["http_filters"] = manager["http_filters"][-1:]


def _no_idle_limit(config: Json) -> None:
    for manager in connection_managers(config):
        manager["stream_idle_timeout"] = "0s"
        for virtual_host in manager["route_config"]["virtual_hosts"]:
            for route in virtual_host.get("routes", ()):
                route.get("route", {}).pop("idle_timeout", None)


def _underscores(config: Json) -> None:
    for manager in connection_managers(config):
        manager["common_http_protocol_options"].pop("headers_with_underscores_action", None)


def _hosts(config: Json) -> None:
    for manager in connection_managers(config):
        manager.pop("strip_trailing_host_dot", None)
        manager["route_config"].pop("ignore_port_in_host_matching", None)


def _no_retries(config: Json) -> None:
    for manager in connection_managers(config):
        for virtual_host in manager["route_config"]["virtual_hosts"]:
            virtual_host.pop("retry_policy", None)


def _no_overload_manager(config: Json) -> None:
    config.pop("overload_manager", None)


def _default_buffers(config: Json) -> None:
    _clusters("per_connection_buffer_limit_bytes")(config)
    for listener in config["static_resources"]["listeners"]:
        listener.pop("per_connection_buffer_limit_bytes", None)


def _exact_names(config: Json) -> None:
    for cluster in config["static_resources"]["clusters"]:
        context = cluster["transport_socket"]["typed_config"]
        names = context["common_tls_context"]["validation_context"]["match_typed_subject_alt_names"]
        names[:] = [{"san_type": "DNS", "matcher": {"exact": context["sni"]}}]


SETTINGS = (
    Setting("idle limit of a request, limit for its headers", _no_idle_limit),
    Setting("X-Forwarded-For, client's address", _managers("use_remote_address")),
    Setting("retries of requests that never reached the backend", _no_retries),
    Setting("path normalisation", _managers("normalize_path", "merge_slashes", "path_with_escaped_slashes_action")),
    Setting("filters that routes can switch on", _router_only),
    Setting("overload manager, buffers by stream", _no_overload_manager),
    Setting("log of failures", _no_log(0)),
    Setting("log of samples, none taken", _no_log(1)),
    Setting("statistics", _no_stats),
    Setting("ports and trailing dots in Host", _hosts),
    Setting("underscores in headers", _underscores),
    Setting("WebSocket", _managers("upgrade_configs", "access_log_options")),
    Setting("Envoy's own answers in words", _managers("local_reply_config")),
    Setting("ejection of endpoints", _clusters("outlier_detection")),
    Setting("breakers and retry budget", _clusters("circuit_breakers")),
    Setting("balancing by fewest requests", _clusters("lb_policy")),
    Setting("the policy in the log", _clusters("metadata")),
    Setting("names as regular expressions", _exact_names),
    Setting("small buffers", _default_buffers),
)


class Asked(NamedTuple):
    host: str
    path: bytes
    warm: int
    requests: int


@contextlib.contextmanager
def _under_valgrind(config: Json, home: Path, port: int, load: Asked) -> Iterator[int]:
    """Yields the process id once requests are answered."""
    file = home / "envoy.json"
    file.write_text(json.dumps(config))
    command = [*VALGRIND, f"--callgrind-out-file={home}/counted.%p", *envoy_command(file, home / "base")]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=home, process_group=0)
    try:
        end = time.monotonic() + READY_WITHIN
        while not asyncio.run(_answers(port, load)):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"Envoy does not serve:\n{(home / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        yield process.pid
    finally:
        process.kill()
        process.wait()


async def _answers(port: int, load: Asked) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    with contextlib.closing(writer):
        writer.write(b"GET %b HTTP/1.1\r\nhost: %b\r\n\r\n" % (load.path, load.host.encode()))
        return b" 200 " in await reader.readline()


def price(config: Json, home: Path, port: int, load: Asked, rounds: int) -> list[float]:
    """Returns instructions of a request, once for each round."""

    def client() -> Paused:
        made = Paused(load.host)
        made.path(load.path)
        return made

    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    with _under_valgrind(config, home, port, load) as pid:
        return [counted_instructions(pid, port, home, [client] * CLIENTS, load.warm, load.requests) for _ in range(rounds)]


def variants(shared: Places, ports: dict[str, int]) -> Iterator[tuple[str, Json]]:
    """Yields the bootstraps by name. Only the HTTP listener is left of each."""
    base = configured(shared, ports, 1, shared.home / "admin.sock")
    base["layered_runtime"]["layers"][0]["static_layer"][SAMPLES_SHARE] = 0
    yield EMITTED, base
    for setting in SETTINGS:
        config = copy.deepcopy(base)
        setting.without(config)
        yield setting.name, config
    yield "hand-tuned", tuned(shared, ports, stats=False)
    yield "hand-tuned, our statistics", tuned(shared, ports, stats=True)
    yield "hand-tuned, our statistics and protections", tuned(shared, ports, stats=True, protected=True)
    yield "Envoy Gateway's", envoy_gateway(shared, ports)


@click.command()
@click.option("--kind", default="h1", show_default=True, type=click.Choice(["h1", "close"]), help="Of backend.")
@click.option("--large", is_flag=True, help="1 MiB instead of 1 KiB.")
@click.option("--rounds", default=2, show_default=True, type=click.IntRange(1))
@click.option("--only", default="", help="Settings with these words in their names, separated by commas.")
def main(kind: str, large: bool, rounds: int, only: str) -> None:
    """Measures the cost of each setting for a request, in instructions."""
    if not (shutil.which("valgrind") and shutil.which("callgrind_control")):
        sys.exit("valgrind is not installed; Debian and others have a package of that name")
    many = (20, 60) if large else (150, 400)
    load = Asked(host(kind), b"/large" if large else b"/", *many)
    with contextlib.ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="bench-prices-", dir="/tmp"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        shared = stack.enter_context(places(home, installed(())))
        port = free_port()
        base = 0.0
        for name, config in variants(shared, {"http": port, "grpc": free_port(), "stream": free_port()}):
            if base and only and not any(word.strip() in name for word in only.split(",")):
                continue
            prices = price(config, home / "envoy", port, load, rounds)
            mean = statistics.mean(prices)
            base = base or mean
            spread = 100 * (max(prices) - min(prices)) / base
            whole = name == EMITTED or name.startswith(("hand-tuned", "Envoy Gateway"))
            shown = f"{mean:,.0f}, {mean / base:.3f} of ours" if whole else f"{100 * (base - mean) / base:+.2f} %"
            click.echo(f"{name:44} {shown} (rounds differ by {spread:.2f} %)")


if __name__ == "__main__":
    main()
