"""Keeps the CA that the API server trusts in the webhook's configuration, which the chart makes: the leader writes it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Final

from lasthop.base.api.documents import Json
from lasthop.base.text.repeat_filter import RepeatFilter
from lasthop.edge.kubernetes.client import path_of
from lasthop.edge.kubernetes.errors import ApiError
from lasthop.run.infra.kubernetes.api import Api, find

LOOK: Final = 5.0
"""Seconds between two looks: a configuration that is applied anew, as by `helm upgrade`, has no CA."""


def service_name(namespace: str) -> str:
    """Returns the name by which the API server knows the webhook; deploy/webhook.yaml has the Service."""
    return f"lasthop-webhook.{namespace}.svc"


def configuration(namespace: str) -> str:
    """Returns the API path of the ValidatingWebhookConfiguration."""
    return path_of("admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", "", f"{namespace}-webhook")


class WebhookTrust:
    def __init__(
        self,
        api: Api,
        namespace: str,
        *,
        trusted: Callable[[], bytes],
        may_write: Callable[[], bool],
        problem: Callable[[str], None],
    ) -> None:
        """`trusted` returns the CA certificates, empty while there are none; two while one is being replaced."""
        self._api, self._path, self._trusted = api, configuration(namespace), trusted
        self._may_write, self._problem = may_write, RepeatFilter(problem)

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(LOOK)

    async def refresh(self) -> None:
        bundle = base64.b64encode(self._trusted()).decode()
        if not bundle or not self._may_write():
            return
        try:
            found = await find(self._api, self._path)
            if found and (wanted := with_trust(found, bundle)) != found:
                await self._api.put(self._path, wanted)
            self._problem.last = ""
        except ApiError as error:
            if not error.conflict:
                self._problem(f"the webhook's configuration ({self._path}): {error}")


def with_trust(document: Json, bundle: str) -> Json:
    """Returns the configuration with this CA for each of its webhooks."""
    hooks = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in document.get("webhooks") or ()]
    return {**document, "webhooks": hooks}
