"""Reads listeners by name from GlobalConfigurations."""

from __future__ import annotations

import msgspec

from lasthop_import.documents import mappings
from lasthop_import.inputs import Inputs
from lasthop_import.notes import Category
from lasthop_import.reader import FieldReader
from lasthop_import.systems.nginx.kinds import GLOBAL_CONFIGURATION
from lasthop_import.values import is_port


class NamedListener(msgspec.Struct, frozen=True):
    protocol: str
    port: int


class CustomListeners:
    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.by_name: dict[str, NamedListener] = {}
        self._used: set[str] = set()
        for document in inputs.of(GLOBAL_CONFIGURATION):
            for listener in inputs.open(document).child("spec").children("listeners"):
                name, protocol, port = listener.text("name"), listener.text("protocol"), listener.integer("port", 0) or 0
                listener.boolean("ssl")
                for key in ("ipv4", "ipv6"):
                    listener.cannot(key, "a listener cannot have an address; set spec.addresses of the Gateway")
                self.by_name.setdefault(name, NamedListener(protocol, port))

    def find(self, name: str) -> NamedListener | None:
        self._used.add(name)
        return self.by_name.get(name)

    def note_unused(self) -> None:
        """Lists the GlobalConfigurations without a listener that an imported object names."""
        for document in self._inputs.of(GLOBAL_CONFIGURATION):
            if not any(listener.get("name") in self._used for listener in mappings(document.spec.get("listeners"))):
                self._inputs.skip(document, "unused", "no server that is imported names one of its listeners")

    def port(self, reader: FieldReader, key: str, usual: int) -> int:
        """Returns the port of the listener that a field names, else the usual port."""
        name = reader.text(key)
        if not name:
            return usual
        listener = self.find(name)
        if listener is None or not is_port(listener.port):
            text = f"no GlobalConfiguration in the input has a listener {name}; port {usual} is written"
            reader.note(Category.TODO, "listener-unknown", text, key, remedy="Add the GlobalConfiguration to the input.")
            return usual
        return listener.port
