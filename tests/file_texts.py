"""Small documents for the tests of the files source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lasthop.base.api.core import Service
from lasthop.base.api.meta import Key
from lasthop.edge.admission.chain import admit
from lasthop.edge.admission.problem import field
from lasthop.edge.admission.yaml import parse
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.source import Batch


def service(name: str = "web", port: int = 80, namespace: str = "shop") -> str:
    return f"""\
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  ports:
  - port: {port}
"""


def policy(name: str = "web", *targets: str, hostname: str = "web.example", more: str = "") -> str:
    refs = "".join(f"\n  - {{group: '', kind: Service, name: {target}}}" for target in targets or ("web",))
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {name}, namespace: shop}}
spec:
  targetRefs:{refs}
  validation:
    hostname: {hostname}
    wellKnownCACertificates: System
{more}"""


def route(rules: str = "") -> str:
    return f"""\
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: web, namespace: shop}}
spec:
  parentRefs:
  - name: gateway
  rules:
{rules}"""


def config_map(annotation: str = "", data: str = "") -> str:
    return f"""\
apiVersion: v1
kind: ConfigMap
metadata:
  name: ca
  namespace: shop
  annotations:
    lasthop.dev/file.ca.crt: {annotation}
{data}"""


SERVICE = Key("Service", "shop", "web")
POLICY = Key("BackendTLSPolicy", "shop", "web")
CONFIG_MAP = Key("ConfigMap", "shop", "ca")


def stored(text: str) -> dict[str, Any]:
    """A document as the API server would store it; fails if it is refused."""
    (document,) = parse(text.encode()).documents
    kept, problems = admit(document)
    assert problems == []
    return kept


def refused(text: str) -> list[tuple[str, str]]:
    """Field and message of all that is wrong with a document."""
    (document,) = parse(text.encode()).documents
    return [(field(problem.path), problem.message) for problem in admit(document)[1]]


def reload(loader: Loader) -> Batch:
    """Looks at everything and believes it; fails if nothing changed."""
    batch = loader.apply(loader.look())
    assert batch is not None
    loader.save()
    return batch


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)


def reasons(batch: Batch) -> list[str]:
    return [finding.reason for finding in batch.findings]


def port(batch: Batch) -> int:
    """Returns the port of the Service in a batch."""
    obj = batch.changes[SERVICE]
    assert isinstance(obj, Service)
    return obj.spec.ports[0].port
