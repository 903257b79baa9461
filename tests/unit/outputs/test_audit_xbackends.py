"""XBackends in the audit: a backend that speaks for itself, with the certificates that it names."""

from __future__ import annotations

import msgspec

from lasthop.base.api.meta import Key
from lasthop.engine.engine import Engine
from lasthop.engine.outputs.audit.audit import Audit, document, read
from lasthop.engine.outputs.audit.certificates import Role
from tests.world import NOW, ca_pem, key_pair, keyed, mk_class, mk_config_map, mk_gateway, mk_route, mk_secret, mk_xbackend

REF = {"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "x"}
BY_CA = {"hostname": "api.example", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}


def test_an_xbackend_has_no_policy_and_its_certificates_count() -> None:
    engine = Engine(now=NOW.timestamp())
    shown = {"clientCertificateRef": {"name": "own"}}
    engine.apply(keyed(mk_class(), mk_gateway("a/g"), mk_route("a/r", "a/g", [REF])))
    engine.apply(keyed(mk_xbackend("a/x", "api.example", "ClientAndServer", BY_CA, tls=shown)))
    engine.apply(keyed(mk_config_map("a/ca", ca_pem("good")), mk_secret("a/own", *key_pair("own"))))
    engine.settle()
    (hop,) = engine.hops()
    assert (hop.address, hop.policy, hop.mode) == ("XBackend a/x:443", None, "Verified")
    audit = Audit((hop,), tuple(engine.certificates()))
    assert read(msgspec.json.decode(msgspec.json.encode(document(audit)))) == audit
    assert next(hop.objects) == Key("XBackend", "a", "x")
    certificates = {(c.role, str(c.holder), c.users) for c in engine.certificates()}
    user = (Key("XBackend", "a", "x"),)
    assert certificates == {(Role.ANCHOR, "ConfigMap a/ca", user), (Role.CLIENT, "Secret a/own", user)}
