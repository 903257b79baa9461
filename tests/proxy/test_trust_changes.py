"""Trust that changes outside the YAML: the host's own store, and certificates in files that an annotation names."""

from __future__ import annotations

from collections.abc import Callable

from tests.backends import Backend, until
from tests.proxy import documents as docs
from tests.proxy.certs import CA, OTHER_CA, issued
from tests.proxy.lasthop import Lasthop


def test_a_changed_system_store_is_a_changed_policy(own: Callable[..., Lasthop], serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    lasthop = own()
    store = lasthop.root / "store.pem"
    store.write_text(CA.pem)
    lasthop.env["SSL_CERT_FILE"] = str(store)
    lasthop.standard()
    lasthop.write("hop.yaml", *docs.hop("api", served.port, docs.policy("api", "api.example")))
    lasthop.start()
    assert lasthop.get("api").status == 200
    store.write_text(OTHER_CA.pem)
    lasthop.until_status("api", 503)
    store.write_text(OTHER_CA.pem + CA.pem)
    lasthop.until_status("api", 200)
    store.write_text("")
    lasthop.until_status("api", 500)
    accepted = lasthop.conditions("BackendTLSPolicy", "api")["Accepted"]
    assert accepted[:2] == ("False", "Invalid")
    assert "CA bundle" in accepted[2]
    store.unlink()
    lasthop.settle()
    assert lasthop.get("api").status == 500
    replaced = store.with_suffix(".new")
    replaced.write_text(CA.pem)
    replaced.rename(store)
    lasthop.until_status("api", 200)


def test_a_ca_in_a_file_beside_the_yaml_is_read_again_when_it_changes(gateway: Lasthop, serve: Callable[..., Backend]) -> None:
    served = serve(issued())
    outside = gateway.root / "ca-in-a-file.pem"
    outside.write_text(CA.pem)
    annotated = docs.obj("v1", "ConfigMap", "from-file", annotations={"lasthop.dev/file.ca.crt": str(outside)})
    gateway.load(
        "from-file.yaml", annotated, *docs.hop("from-file", served.port, docs.policy("from-file", "api.example", "from-file"))
    )
    assert gateway.get("from-file").status == 200
    outside.write_text(OTHER_CA.pem)
    gateway.until_status("from-file", 503)
    replaced = gateway.root / "new.pem"
    replaced.write_text(CA.pem)
    replaced.rename(outside)
    gateway.until_status("from-file", 200)
    # A missing file is a broken input: its last good content stays, and a finding reports it.
    outside.unlink()
    until(lambda: [f for f in gateway.findings() if outside.name in str(f)])
    assert gateway.get("from-file").status == 200
