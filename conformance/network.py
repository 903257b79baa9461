"""Configures the cluster's network inside its own network namespace: addresses and routes.

br0 10.244.0.1/16          the node; pods are 10.244.1.x, each in its own namespace with a veth to br0
10.245.0.0/16 on lo        LoadBalancer and Gateway addresses: every one can be bound and dialled (AnyIP)
10.96.0.0/16 on lo         ClusterIPs, only so that the node's address translation sees the packets
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from conformance.children import check

NODE_IP = "10.244.0.1"
POD_PREFIX = "10.244"
LOAD_BALANCER_PREFIX = "10.245"
LOAD_BALANCER_RANGE = "10.245.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"
USABLE_ADDRESS = "10.245.200.1"  # for GatewayStaticAddresses: of the range, never handed out by itself
UNUSABLE_ADDRESS = "203.0.113.1"

# A bridge without an address of its own takes that of one of its pods, and another's when that one ends; pods then send to the
# old one until their neighbour entry has aged, which takes 30 s.
_BRIDGE_ADDRESS = "02:00:0a:f4:00:01"

_SETUP = f"""\
link set lo up
link add br0 address {_BRIDGE_ADDRESS} type bridge
addr add {NODE_IP}/16 dev br0
link set br0 up
route add local {LOAD_BALANCER_RANGE} dev lo
route add local {SERVICE_RANGE} dev lo
"""


async def setup() -> None:
    await check("ip", "-batch", "-", stdin=_SETUP)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    with suppress(OSError):  # only there when br_netfilter is
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("0")
