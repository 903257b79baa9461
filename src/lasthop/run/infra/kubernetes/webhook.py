"""Keeps the CA in the webhook's configuration, which the chart creates, up to date. The leader writes it."""

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

CHECK_SECONDS: Final = 5.0
"""Seconds between two checks, because a configuration that is applied again, as by `helm upgrade`, has no CA."""


def service_name(namespace: str) -> str:
    """Returns the webhook's name for the API server; deploy/webhook.yaml has the Service."""
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
        """`trusted` returns the CA certificates, or an empty text; two during a rotation."""
        self._api, self._path, self._trusted = api, configuration(namespace), trusted
        self._may_write, self._problem = may_write, RepeatFilter(problem)

    async def run(self) -> None:
        while True:
            await self.refresh()
            await asyncio.sleep(CHECK_SECONDS)

    async def refresh(self) -> None:
        bundle = base64.b64encode(self._trusted()).decode()
        if not bundle or not self._may_write():
            return
        try:
            existing = await find(self._api, self._path)
            if existing and (desired := with_trust(existing, bundle)) != existing:
                await self._api.put(self._path, desired)
            self._problem.last = ""
        except ApiError as error:
            if not error.conflict:
                self._problem(f"the webhook's configuration ({self._path}): {error}")


def with_trust(document: Json, bundle: str) -> Json:
    """Returns the configuration with this CA in each of its webhooks."""
    hooks = [{**hook, "clientConfig": {**hook["clientConfig"], "caBundle": bundle}} for hook in document.get("webhooks") or ()]
    return {**document, "webhooks": hooks}
