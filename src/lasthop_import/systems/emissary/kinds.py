"""The kinds of Emissary, and which objects are of the instance that is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from lasthop.base.api.kinds import Kind
from lasthop.base.api.meta import Object
from lasthop_import.documents import Document, texts
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category, NoteSeverity
from lasthop_import.reader import FieldReader

GROUP, OLD_GROUP = "getambassador.io", "x.getambassador.io"
GROUPS: Final = (GROUP, OLD_GROUP)
_NAMES: Final = {
    "Mapping": "mappings",
    "TCPMapping": "tcpmappings",
    "Host": "hosts",
    "Listener": "listeners",
    "TLSContext": "tlscontexts",
    "Module": "modules",
    "AuthService": "authservices",
    "RateLimitService": "ratelimitservices",
    "LogService": "logservices",
    "TracingService": "tracingservices",
    "DevPortal": "devportals",
    "ConsulResolver": "consulresolvers",
    "KubernetesEndpointResolver": "kubernetesendpointresolvers",
    "KubernetesServiceResolver": "kubernetesserviceresolvers",
}
KINDS: Final = (
    *(Kind(name, GROUP, ("v3alpha1", "v2", "v1"), plural, Object) for name, plural in _NAMES.items()),
    *(Kind(f"Ambassador{name}", OLD_GROUP, ("v3alpha1",), f"ambassador{plural}", Object) for name, plural in _NAMES.items()),
)
_SKIPPED: Final = {
    "LogService": "logs are the gateway's own",
    "TracingService": "tracing is not configured by an object",
    "DevPortal": "there is no developer portal",
    "KubernetesServiceResolver": "Services are always resolved",
    "KubernetesEndpointResolver": "endpoints are always used",
}


class EmissaryObjects:
    def __init__(self, inputs: Inputs, instance: str) -> None:
        self._inputs = inputs
        self._instance = instance

    def of(self, name: str) -> Iterator[FieldReader]:
        """Yields the objects of a kind, oldest first, that are of this instance."""
        kinds = [kind for kind in KINDS if kind.kind in (name, f"Ambassador{name}")]
        for document in sorted((each for kind in kinds for each in self._inputs.of(kind)), key=lambda each: each.age):
            wanted = _instances(document)
            if self._instance in wanted:
                reader = self._inputs.open(document)
                reader.child("spec").ignore("ambassador_id")
                yield reader
            else:
                self._inputs.skip(document, "other-instance", f"ambassador_id is {', '.join(wanted)}, not {self._instance}")

    def module_namespace(self) -> bool:
        """Reads the Module; returns whether Services without a namespace are in Emissary's own, not the Mapping's."""
        found = False
        for reader in self.of("Module"):
            config = reader.child("spec").child("config")
            key = "use_ambassador_namespace_for_service_resolution"
            found = config.boolean(key) or found
            for each in sorted(config.value):
                if each != key:
                    text = "a setting of the whole instance that is not carried over"
                    config.note(
                        Category.CANNOT, "module", text, each, severity=NoteSeverity.HIGH if each == "defaults" else None
                    )
        return found

    def list_others(self) -> None:
        """Lists the kinds that are never carried over."""
        for reader in self.of("RateLimitService"):
            reader.note(Category.ACCESS_CONTROL, "rate-limits", "requests were limited; they are not any more", "spec")
        for reader in self.of("ConsulResolver"):
            reader.note(Category.CANNOT, "consul", "backends of Consul have no equivalent", "spec", severity=NoteSeverity.HIGH)
        for name, text in _SKIPPED.items():
            for reader in self.of(name):
                reader.note(Category.SKIPPED, "not-needed", text, "spec")


def _instances(document: Document) -> tuple[str, ...]:
    value = document.spec.get("ambassador_id")
    return texts([value] if isinstance(value, str) else value) or ("default",)
