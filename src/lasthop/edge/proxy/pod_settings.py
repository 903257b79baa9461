"""Reads the settings of `lasthop proxy` from environment variables, which `infra/kubernetes` sets in the Pod."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from lasthop.base.api.addresses import split_port

GATEWAY: Final = "LASTHOP_GATEWAY"
XDS_ADDRESS: Final = "LASTHOP_XDS_ADDRESS"
XDS_SERVER_NAME: Final = "LASTHOP_XDS_SERVER_NAME"
CERTIFICATES: Final = "LASTHOP_XDS_CERTIFICATES"
RUN_DIR: Final = "LASTHOP_RUN_DIR"
READY_PORT: Final = "LASTHOP_READY_PORT"
DRAIN_SECONDS: Final = "LASTHOP_DRAIN_SECONDS"
POD: Final = "HOSTNAME"
"""Every container runtime sets this to the Pod's name."""


class InvalidSetting(Exception):
    """An environment variable is missing or invalid. The text names it and its expected content."""


class PodEnvironment(msgspec.Struct, frozen=True):
    gateway: str
    """`namespace/name`, for logs only: the proxy's certificate decides which configuration it receives."""
    xds_host: str
    xds_port: int
    xds_server_name: str
    certificates: Path
    run_dir: Path
    ready_port: int
    drain_seconds: float
    pod: str = ""
    """The Pod's name, which distinguishes proxies in statuses."""


def from_environment(env: Mapping[str, str]) -> PodEnvironment:
    host, port = split_port(_needed(env, XDS_ADDRESS, "the controller's HOST:PORT"))
    return PodEnvironment(
        gateway=_needed(env, GATEWAY, "the Gateway's NAMESPACE/NAME"),
        xds_host=host,
        xds_port=int(_number(XDS_ADDRESS, port)),
        xds_server_name=env.get(XDS_SERVER_NAME) or host,
        certificates=Path(_needed(env, CERTIFICATES, "the folder with tls.crt, tls.key and ca.crt")),
        run_dir=Path(_needed(env, RUN_DIR, "a folder that it may write to")),
        ready_port=int(_number(READY_PORT, env.get(READY_PORT, "15021"))),
        drain_seconds=_number(DRAIN_SECONDS, env.get(DRAIN_SECONDS, "30")),
        pod=env.get(POD, ""),
    )


def _needed(env: Mapping[str, str], name: str, meaning: str) -> str:
    if value := env.get(name):
        return value
    raise InvalidSetting(f"{name} is not set; it must contain {meaning}. `lasthop proxy` runs in Pods that Lasthop creates.")


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidSetting(f"{name}: {text!r} is not a number") from None
