"""Reads `service`: [http[s]://]name[.namespace][:port], a Service or a host outside."""

from __future__ import annotations

import re
from typing import NamedTuple

from lasthop.base.api.addresses import is_ip
from lasthop_import.model import AddressBackend, Backend, HostBackend, ServiceBackend
from lasthop_import.names import slug
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader
from lasthop_import.systems.emissary.kinds import ModuleSettings
from lasthop_import.values import is_port

_SCHEME = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://")


class ServiceTarget(NamedTuple):
    backend: Backend
    hostname: str
    """The hostname as written, without namespace or port."""


class EmissaryServices:
    def __init__(self, module: ModuleSettings) -> None:
        self._own_namespace = module.own_namespace
        self.timeout = module.timeout

    def find(self, reader: FieldReader, key: str, tls: bool) -> ServiceTarget | None:
        """Returns the target of a service. The default port is 443 with TLS, else 80."""
        text = _SCHEME.sub("", reader.text(key).strip(), count=1)
        authority, extra, _ = text.partition("/")
        host, _, number = authority.rpartition(":") if re.fullmatch(r".*:[0-9]{1,5}", authority) else (authority, "", "")
        port = int(number) if number else 443 if tls else 80
        host = host.strip("[]").lower()
        if extra:
            reader.note(Category.CHANGED, "service-path", "the part after host and port is ignored", key)
        if not host or not is_port(port):
            reader.note(
                Category.CANNOT,
                "service",
                "names no host and port; the reference is left out",
                key,
                severity=NoteSeverity.HIGH,
            )
            return None
        return ServiceTarget(self._backend(reader, key, host, port), host)

    def _backend(self, reader: FieldReader, key: str, host: str, port: int) -> Backend:
        namespace = reader.namespace
        if is_ip(host):
            return AddressBackend(namespace, f"address-{slug(host)}-{port}", port, "port", ((host, port),))
        labels = host.removesuffix(".").split(".")
        if len(labels) == 1:
            if self._own_namespace:
                text = "is in Emissary's namespace, which is unknown; the import assumes the namespace of the Mapping"
                reader.note(Category.TODO, "service-namespace", text, key, remedy="Write name.namespace.")
            return ServiceBackend(namespace, host, port)
        if len(labels) == 2 or labels[2:] in (["svc"], ["svc", "cluster", "local"]):
            return ServiceBackend(labels[1], labels[0], port)
        return HostBackend(namespace, f"{host}.{port}", host, port)


def scheme(text: str) -> str:
    """Returns the scheme in lower case; empty without one."""
    match = _SCHEME.match(text.strip())
    return match["scheme"].lower() if match else ""
