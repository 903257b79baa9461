"""The CA in the webhook's configuration."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from lasthop.base.api.documents import Json
from lasthop.edge.kubernetes.client import JSON
from lasthop.run.infra.kubernetes.webhook import WebhookTrust, configuration, service_name, with_trust

CHART = (Path(__file__).parents[4] / "deploy" / "webhook.yaml").read_text()
DOCUMENTS = list(
    yaml.safe_load_all(
        CHART.replace("{{ .Release.Namespace }}", "gateways").replace("{{ .Values.webhook.failurePolicy }}", "Ignore")
    )
)
HOOK = next(document for document in DOCUMENTS if document["kind"] == "ValidatingWebhookConfiguration")


class Configuration:
    """An API server with this one object; it counts how often that is written."""

    def __init__(self) -> None:
        self.document: Json = HOOK
        self.written = 0

    async def get(self, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON) -> Json:
        assert path == configuration("gateways")
        return self.document

    async def put(self, path: str, body: Json) -> Json:
        self.document, self.written = body, self.written + 1
        return body

    async def create(self, path: str, body: Json) -> Json:
        raise AssertionError(path)

    async def apply(self, path: str, body: Json) -> Json:
        raise AssertionError(path)

    async def delete(self, path: str, *, uid: str = "") -> None:
        raise AssertionError(path)


def test_the_chart_names_what_the_controller_looks_for() -> None:
    service = HOOK["webhooks"][0]["clientConfig"]["service"]
    assert f"{service['name']}.{service['namespace']}.svc" == service_name("gateways")
    assert configuration("gateways").endswith(f"/{HOOK['metadata']['name']}")
    (role,) = (document for document in DOCUMENTS if document["kind"] == "ClusterRole")
    assert role["rules"][0]["resourceNames"] == [HOOK["metadata"]["name"]]


@pytest.mark.parametrize(("leads", "writes"), [(True, 1), (False, 0)])
async def test_only_the_leader_writes_it_and_only_if_it_differs(leads: bool, writes: int) -> None:
    api = Configuration()
    problems: list[str] = []
    trust = WebhookTrust(api, "gateways", trusted=lambda: b"old", may_write=lambda: leads, problem=problems.append)
    await trust.refresh()
    await trust.refresh()
    assert (api.written, problems) == (writes, [])
    if leads:
        assert api.document == with_trust(HOOK, base64.b64encode(b"old").decode())
