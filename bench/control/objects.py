"""Creates the objects for both systems: the same objects under each system's names, in a namespace that only that system
watches."""

from __future__ import annotations

import datetime
import functools
from collections.abc import Iterator
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from conformance.network import NODE_IP
from examples.quickstart.certificates import DAYS, Issued

Object = dict[str, Any]
API = "gateway.networking.k8s.io/v1"
GATEWAY = "web"


def edition(ca: Issued) -> str:
    """Returns another certificate of the same CA. Certificates that the CA signed are valid under each, and no two are the
    same bytes."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(ca.name)
        .issuer_name(ca.name)
        .public_key(ca.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(ca.key.public_key()), critical=False)
    )
    return builder.sign(ca.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()


def set_name(number: int) -> str:
    return f"s{number:05}"


def host(number: int) -> str:
    """Returns the hostname of clients' requests."""
    return f"{set_name(number)}.example"


def sni(number: int, edition: int) -> str:
    """Returns the verification that the policy requires of the backend, whose certificate has `*.bench.example`."""
    return f"{set_name(number)}-{edition}.bench.example"


def mk(namespace: str, version: str, kind: str, name: str, **content: Any) -> Object:
    labels = content.pop("labels", {})
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        **content,
    }


def gateway(namespace: str, name: str, gateway_class: str, port: int, **spec: Any) -> Object:
    listener = {"name": "http", "port": port, "protocol": "HTTP"}
    return mk(namespace, API, "Gateway", name, spec={"gatewayClassName": gateway_class, "listeners": [listener], **spec})


def config_map(namespace: str, name: str, pem: str) -> Object:
    return mk(namespace, "v1", "ConfigMap", name, data={"ca.crt": pem})


def validation(number: int, edition: int = 0, ca: str = "") -> Object:
    """Returns the patch of a policy edit."""
    reference = {"group": "", "kind": "ConfigMap", "name": ca or set_name(number)}
    return {"hostname": sni(number, edition), "caCertificateRefs": [reference]}


def policy_set(
    namespace: str, number: int, port: int, ca: Issued, parent: str = GATEWAY, address: str = NODE_IP
) -> Iterator[Object]:
    """Yields a Service with one endpoint, its route, its policy and the CA of that policy."""
    name, make = set_name(number), functools.partial(mk, namespace)
    yield make(
        "v1", "Service", name, spec={"clusterIP": "None", "ports": [{"name": "https", "port": 443, "targetPort": port}]}
    )
    yield make(
        "discovery.k8s.io/v1", "EndpointSlice", name, labels={"kubernetes.io/service-name": name}, **endpoints(port, address)
    )
    rules = [{"backendRefs": [{"name": name, "port": 443}]}]
    yield make(API, "HTTPRoute", name, spec={"parentRefs": [{"name": parent}], "hostnames": [host(number)], "rules": rules})
    target = {"group": "", "kind": "Service", "name": name}
    yield make(API, "BackendTLSPolicy", name, spec={"targetRefs": [target], "validation": validation(number)})
    yield config_map(namespace, name, edition(ca))


def endpoints(port: int, address: str = NODE_IP) -> Object:
    """By default on the node's own address: API servers refuse loopback."""
    endpoint = {"addresses": [address], "conditions": {"ready": True}}
    return {"addressType": "IPv4", "ports": [{"name": "https", "port": port, "protocol": "TCP"}], "endpoints": [endpoint]}
