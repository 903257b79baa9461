"""Reads the backend settings of EnvoyProxies, and lists those without an equivalent."""

from __future__ import annotations

from typing import Final

from lasthop.engine.plan.tls_options import TLSOptions
from lasthop_import.inputs import Inputs
from lasthop_import.model import ObjectName
from lasthop_import.notes import Category
from lasthop_import.systems.envoy_gateway.backend_tls import read_settings
from lasthop_import.systems.envoy_gateway.kinds import OWN

EXTENSIONS: Final = {
    "EnvoyPatchPolicy": "patches of Envoy's configuration have no equivalent, and may restrict access",
    "EnvoyExtensionPolicy": "extensions (Wasm, Lua, external processing) have no equivalent, and may restrict access",
}


def list_others(inputs: Inputs) -> None:
    for kind, text in EXTENSIONS.items():
        for document in inputs.of(OWN[kind]):
            inputs.open(document).note(Category.ACCESS_CONTROL, "extension", text, "spec")


def read_proxies(inputs: Inputs) -> tuple[TLSOptions, dict[tuple[str, str], ObjectName]]:
    """Returns the options for all backends, and the client certificate of each EnvoyProxy."""
    options, clients = TLSOptions(), {}
    documents = inputs.of(OWN["EnvoyProxy"])
    for document in documents:
        spec = inputs.open(document).child("spec")
        if "backendTLS" in spec:
            settings = read_settings(inputs, spec.child("backendTLS"))
            if settings.client:
                clients[document.namespace, document.bare_name] = settings.client
            if settings.options != TLSOptions() and len(documents) > 1:
                text = "one of several EnvoyProxies has options, which hold for the backends of all Gateways now"
                spec.note(Category.CHANGED, "options-widened", text, None)
            options = settings.options if settings.options != TLSOptions() else options
        for key in sorted(spec.value):
            if key != "backendTLS":
                spec.cannot(key, "belongs to Envoy Gateway's own proxies")
    return options, clients
