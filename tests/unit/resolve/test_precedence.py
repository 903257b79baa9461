"""Which policy applies to a port when one of them cannot be read: age decides as ever, and trust never changes hands."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lasthop.base.api.meta import Key, Object, ObjectMeta
from lasthop.base.api.policies import BackendTLSPolicy, PolicyTargetReference, RejectedPolicy
from lasthop.base.api.status import PolicyStatus
from lasthop.edge.kubernetes.objects import read_object
from lasthop.edge.sources.files.source import FilesSource
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.explain.explain import explain
from lasthop.engine.outputs.status.status_cache import StatusCache
from tests.snapshot import Snapshot, settled, tls_context
from tests.world import ca_pem, keyed, mk_class, mk_config_map, mk_gateway, mk_policy, mk_route, mk_service, mk_slice

GATEWAY = Key("Gateway", "a", "g")
HOP = "a/g/a/s/443/auto"
OLD, NEW = "2020-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
BASE = keyed(
    mk_class(),
    mk_gateway("a/g"),
    mk_service("a/s"),
    mk_slice("a/s-1", "s", ["10.0.0.1"]),
    mk_route("a/r", "a/g", [{"name": "s", "port": 443}]),
    mk_config_map("a/one", ca_pem("one")),
    mk_config_map("a/two", ca_pem("two")),
)
YOUNGER = mk_policy("a/younger", "s", "api.example", ["one"], created=NEW)


def rejected(name: str, created: str, section: str = "", good: Object | None = None) -> dict[Key, Object | None]:
    target = PolicyTargetReference("", "Service", "s", section)
    assert good is None or isinstance(good, BackendTLSPolicy)
    return keyed(RejectedPolicy(ObjectMeta(name, "a", creation_timestamp=created), (target,), "spec.mode is unknown", good))


def served(changes: dict[Key, Object | None]) -> tuple[str | None, Engine, Snapshot]:
    """The SNI towards the backend; None where the port fails closed."""
    engine, snapshot = settled({**BASE, **changes})
    cluster = snapshot.clusters().get((GATEWAY, HOP))
    context = tls_context(cluster) if cluster else None
    assert cluster is None or context is not None, "plaintext"
    return (context.sni if context else None), engine, snapshot


def test_an_unreadable_policy_that_is_older_fails_closed() -> None:
    sni, _, snapshot = served({**keyed(YOUNGER), **rejected("older", OLD)})
    assert sni is None
    status = snapshot.status[Key("BackendTLSPolicy", "a", "younger")]
    assert isinstance(status, PolicyStatus)
    accepted = status.ancestors[0].conditions[0]
    assert (accepted.status, accepted.reason) == ("False", "Conflicted")
    assert accepted.message.endswith("a/older, which is older and cannot be read, so connections fail")


def test_an_unreadable_policy_that_is_younger_changes_nothing() -> None:
    sni, _, _ = served({**keyed(mk_policy("a/p", "s", "api.example", ["one"], created=OLD)), **rejected("younger", NEW)})
    assert sni == "api.example"


def test_equal_ages_are_decided_by_name() -> None:
    assert served({**keyed(YOUNGER), **rejected("zzz", NEW)})[0] == "api.example"
    assert served({**keyed(YOUNGER), **rejected("aaa", NEW)})[0] is None


@pytest.mark.parametrize("section", ["", "https"])
@pytest.mark.parametrize("created", [OLD, NEW])
def test_only_the_last_good_text_of_the_same_policy_goes_before_an_unreadable_one(section: str, created: str) -> None:
    good = mk_policy("a/p", "s", "api.example", ["one"], created=NEW)
    assert served(rejected("p", created, section, good))[0] == "api.example"


def test_an_unreadable_text_closes_what_it_adds_and_the_policy_is_shown_as_its_last_good_text() -> None:
    policy = Key("BackendTLSPolicy", "a", "p")
    good = mk_policy("a/p", "other", "api.example", ["one"], created=NEW)
    for last_good, says, shown in ((good, "a/other", "other"), (None, "could not be read completely", "s")):
        sni, engine, _ = served(rejected("p", NEW, good=last_good))
        assert sni is None
        assert says in str(explain(engine.graph, policy))
        [document] = filter(None, map(StatusCache(engine.store).document, engine.store.keys("BackendTLSPolicy")))
        assert document["spec"]["targetRefs"][0]["name"] == shown
        assert ("rejected" in document) == (last_good is None)


def test_an_unreadable_policy_that_names_the_port_wins_over_one_for_the_whole_service() -> None:
    assert (
        served({**keyed(mk_policy("a/p", "s", "api.example", ["one"], created=OLD)), **rejected("q", NEW, "https")})[0] is None
    )


def test_files_an_older_policy_with_an_unknown_field_fails_closed(tmp_path: Path) -> None:
    text = """\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {{name: {name}, namespace: a, creationTimestamp: "{created}"}}
spec:
  targetRefs: [{{group: "", kind: Service, name: s}}]
  {more}
  validation: {{hostname: api.example, caCertificateRefs: [{{group: "", kind: ConfigMap, name: one}}]}}
"""
    (tmp_path / "older.yaml").write_text(text.format(name="older", created=OLD, more="mode: Strict"))
    (tmp_path / "younger.yaml").write_text(text.format(name="younger", created=NEW, more="options: {}"))
    batch = FilesSource(tmp_path).load()
    assert Key("BackendTLSPolicy", "a", "younger") in batch.changes
    assert served(dict(batch.changes))[0] is None


@pytest.mark.parametrize("field", ["spec", "validation", "targetRefs"])
def test_cluster_a_policy_with_a_field_of_a_newer_api_fails_closed_and_names_it(field: str) -> None:
    target = {"group": "", "kind": "Service", "name": "s"}
    validation = {"hostname": "api.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "two"}]}
    spec: dict[str, object] = {"targetRefs": [target], "validation": validation}
    {"spec": spec, "validation": validation, "targetRefs": target}[field]["from"] = "Strict"  # type: ignore[index]
    metadata = {"name": "older", "namespace": "a", "creationTimestamp": OLD}
    read = read_object("BackendTLSPolicy", msgspec.json.encode({"metadata": metadata, "spec": spec}))
    assert read.problem is not None and "from" in read.problem.message
    sni, _, snapshot = served({**keyed(YOUNGER), read.key: read.object})
    assert sni is None
    status = snapshot.status[Key("BackendTLSPolicy", "a", "older")]
    assert isinstance(status, PolicyStatus)
    accepted = status.ancestors[0].conditions[0]
    assert (accepted.reason, accepted.status) == ("Invalid", "False")
    assert "from" in accepted.message


def test_cluster_an_xbackend_with_a_field_of_a_newer_api_is_refused_and_the_field_is_named() -> None:
    validation = {"hostname": "api.example", "wellKnownCACertificates": "System", "minimumKeySize": 4096}
    spec = {"type": "ExternalHostname", "tls": {"mode": "ServerOnly", "validation": validation}}
    read = read_object("XBackend", msgspec.json.encode({"metadata": {"name": "x", "namespace": "a"}, "spec": spec}))
    assert read.problem is not None and "minimumKeySize" in read.problem.message
    assert read.object is None
