"""Does kube-proxy's job: one nft table, replaced as a whole, maps the addresses of Services to those of their pods.

Every translated connection is also masqueraded: pods share one bridge, so an untranslated reply would not come back this way.
That hides the client's address from the pods, also with externalTrafficPolicy: Local.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from conformance.api import Object
from conformance.network import SERVICE_RANGE

TABLE = "lasthop_services"
Endpoint = tuple[str, int]


def ruleset(services: Iterable[Object], slices: Iterable[Object]) -> str:
    by_service: dict[tuple[str, str], list[Object]] = {}
    for item in slices:
        service = (item["metadata"].get("labels") or {}).get("kubernetes.io/service-name", "")
        by_service.setdefault((item["metadata"]["namespace"], service), []).append(item)
    rules = []
    for service in services:
        of_service = by_service.get((service["metadata"]["namespace"], service["metadata"]["name"]), [])
        for port in service["spec"].get("ports") or ():
            endpoints = endpoints_of(of_service, port)
            rules += [_rule(address, port, endpoints) for address in addresses_of(service) if endpoints]
    return _TABLE.format(table=TABLE, rules="\n".join(f"    {rule}" for rule in sorted(rules)), cluster_ips=SERVICE_RANGE)


# The first two lines make the replacement one transaction whether or not the table exists.
# A ClusterIP that was not translated has no endpoints: refused, as kube-proxy does, lest a program of the node answers.
# Only new connections: a reply to the node's own client has the ClusterIP as its address too.
_TABLE = """\
table ip {table}
delete table ip {table}
table ip {table} {{
  chain services {{
{rules}
  }}
  chain output {{ type nat hook output priority -100; jump services; }}
  chain prerouting {{ type nat hook prerouting priority -100; jump services; }}
  chain postrouting {{ type nat hook postrouting priority 100; ct status dnat masquerade; }}
  chain input {{
    type filter hook input priority 0;
    ip daddr {cluster_ips} ct state new meta l4proto tcp reject with tcp reset;
    ip daddr {cluster_ips} ct state new reject;
  }}
}}
"""


def addresses_of(service: Object) -> Iterator[str]:
    spec = service["spec"]
    addresses = [*(spec.get("clusterIPs") or ()), *(spec.get("externalIPs") or ())]
    addresses += [entry.get("ip", "") for entry in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ()]
    return (address for address in dict.fromkeys(addresses) if address and address != "None" and ":" not in address)


def endpoints_of(slices: Iterable[Object], port: dict[str, Any]) -> list[Endpoint]:
    """The ready endpoints of one Service port; matched by name and protocol, since numbers differ. With none ready, those that
    still serve while they end."""
    wanted = (port.get("name", ""), port.get("protocol", "TCP"))
    ready: set[Endpoint] = set()
    serving: set[Endpoint] = set()
    for item in slices:
        if item.get("addressType") != "IPv4":
            continue
        for entry in item.get("ports") or ():
            if (entry.get("name") or "", entry.get("protocol", "TCP")) != wanted or not entry.get("port"):
                continue
            for endpoint in item.get("endpoints") or ():
                conditions, place = endpoint.get("conditions") or {}, (endpoint["addresses"][0], entry["port"])
                if conditions.get("ready") is not False:
                    ready.add(place)
                elif conditions.get("serving"):
                    serving.add(place)
    return sorted(ready or serving)


def _rule(address: str, port: dict[str, Any], endpoints: list[Endpoint]) -> str:
    match = f"ip daddr {address} {port.get('protocol', 'TCP').lower()} dport {port['port']}"
    if len(endpoints) == 1:
        ((ip, number),) = endpoints
        return f"{match} dnat ip to {ip}:{number}"
    choices = ", ".join(f"{index} : {ip} . {number}" for index, (ip, number) in enumerate(endpoints))
    return f"{match} dnat ip to numgen random mod {len(endpoints)} map {{ {choices} }}"
