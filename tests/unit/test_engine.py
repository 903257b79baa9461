"""The engine's memory besides its objects."""

from __future__ import annotations

import itertools
import textwrap
from pathlib import Path

import pytest

from examples.quickstart.certificates import Issued
from lasthop.edge.sources.files.loader import Loader
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.envoy.resource import ENDPOINTS
from tests.snapshot import Snapshot, settle, tls_context

BASE = """
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: lasthop}
spec: {controllerName: lasthop.dev/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web}
spec: {gatewayClassName: lasthop, listeners: [{name: http, port: 8080, protocol: HTTP}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: api}
spec: {parentRefs: [{name: web}], rules: [{backendRefs: [{name: api, port: 443}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: api}
spec: {ports: [{name: https, port: 443}]}
"""
POLICY = """
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {name: api}
spec:
  targetRefs: [{group: "", kind: Service, name: api}]
  validation: {hostname: api.example, caCertificateRefs: [{group: "", kind: ConfigMap, name: ca}]}
"""
TYPO = "a: [\n"
HOP = "default/web/default/api/443/auto"


class Folder:
    """A folder of files, and what Envoy has of them."""

    def __init__(self, path: Path) -> None:
        self.path, self.loader, self.engine, self.snapshot = path, Loader(path), Engine(now=1.8e9), Snapshot()
        self.write(base=BASE)

    def write(self, **files: str | None) -> str:
        """Writes texts by name, None for a deleted file; returns the backend behind the hop then."""
        for name, text in files.items():
            file = self.path / f"{name}.yaml"
            file.unlink(missing_ok=True) if text is None else file.write_text(text)
        batch = self.loader.apply(self.loader.look())
        if batch is not None:
            self.engine.policies.set_unknown(batch.unknown)
            self.engine.apply(batch.changes)
        settle(self.engine, self.snapshot)
        cluster = {name: message for (_, name), message in self.snapshot.clusters().items()}.get(HOP)
        return "nothing" if cluster is None else "TLS" if tls_context(cluster) else "plaintext"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_policy_that_moves_into_any_broken_file_leaves_no_plaintext(folder: Folder) -> None:
    assert folder.write() == "plaintext"
    assert folder.write(broken=TYPO) == "plaintext"  # as before: nothing that was known has changed
    assert folder.write(policy=POLICY) == "nothing"  # its CA is missing
    assert folder.write(broken=None) == "nothing"
    assert folder.write(policy=None, moved=POLICY + TYPO) == "nothing"
    assert folder.write(moved=None) == "plaintext"  # all is readable, and there is no policy any more


def test_nor_if_the_broken_file_has_an_older_text_that_is_in_force(folder: Folder) -> None:
    other = "{apiVersion: v1, kind: Service, metadata: {name: other}, spec: {ports: [{port: 80}]}}"
    assert folder.write(policy=POLICY, team=other) == "nothing"  # its CA is missing
    assert folder.write(policy=None, team=f"{other}\n---\n{POLICY}{TYPO}") == "nothing"
    assert folder.write(base=BASE.replace("https, port: 443", "https, port: 443, appProtocol: http")) == "nothing"
    assert folder.write(base=BASE) == "nothing"
    assert folder.write(team=other) == "plaintext"  # all is readable, and there is no policy any more


def test_a_broken_file_with_an_older_text_in_force_closes_new_ports_and_no_others(folder: Folder) -> None:
    other = "{apiVersion: v1, kind: Service, metadata: {name: other}, spec: {ports: [{port: 80}]}}"
    assert folder.write(team=other) == "plaintext"
    assert folder.write(team=TYPO) == "plaintext"
    assert folder.write(base=None) == "nothing"
    assert folder.write(base=BASE) == "nothing"
    assert folder.write(team=other) == "plaintext"


def test_a_port_that_a_policy_has_named_stays_out_of_plaintext_until_everything_can_be_read(folder: Folder) -> None:
    folder.write(broken=TYPO)
    assert folder.write(policy=POLICY) == "nothing"
    assert folder.write(policy=None) == "nothing"  # it may have moved into the file that cannot be read
    assert folder.write(broken=None) == "plaintext"


def test_an_applied_policy_counts_before_it_is_settled(folder: Folder) -> None:
    folder.write(broken=TYPO)
    (folder.path / "policy.yaml").write_text(POLICY)
    batch = folder.loader.apply(folder.loader.look())
    assert batch is not None
    folder.engine.apply(batch.changes)  # not settled
    assert folder.write(policy=None) == "nothing"


def test_a_cluster_never_goes_out_before_its_endpoints_however_little_time_there_is(folder: Folder) -> None:
    """Envoy requests the endpoints that a new cluster names; if the response has none, it serves without any."""
    names = [f"s{number:02}" for number in range(20)]
    sets = "\n---\n".join(_policed(name) for name in names)
    folder.write(sets=sets, ca=_config_map(Issued("a CA").pem.decode()))
    (folder.path / "ca.yaml").write_text(_config_map(Issued("another CA").pem.decode()))
    batch = folder.loader.apply(folder.loader.look())
    assert batch is not None
    folder.engine.apply(batch.changes)
    rounds = 0
    while folder.engine.unsettled:
        times_up = itertools.chain(itertools.repeat(False, 3), itertools.repeat(True))
        folder.snapshot.take(folder.engine.settle(8, urgent=True, enough=times_up.__next__))
        known = {name for _, type_url, name in folder.snapshot.xds if type_url == ENDPOINTS}
        wanted = {cluster.eds_cluster_config.service_name for cluster in folder.snapshot.clusters().values()}
        assert wanted <= known
        folder.snapshot.take(folder.engine.settle(8, enough=lambda: True))
        rounds += 1
    assert rounds > 1, "it was not done all at once"


def _policed(name: str) -> str:
    policy = POLICY.replace("name: api", f"name: {name}")
    rules = f"[{{backendRefs: [{{name: {name}, port: 443}}]}}]"
    return f"""
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {{name: {name}}}
spec: {{parentRefs: [{{name: web}}], hostnames: [{name}.example], rules: {rules}}}
---
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{name: https, port: 443}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
ports: [{{name: https, port: 8443}}]
endpoints: [{{addresses: [192.0.2.1]}}]
---
{policy}"""


def _config_map(pem: str) -> str:
    return f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: ca}}\ndata:\n  ca.crt: |\n{textwrap.indent(pem, '    ')}"
