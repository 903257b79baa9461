"""Loads the schemas of objects: upstream's CRDs as shipped, our own CRDs, and those of Kubernetes' built-in kinds.

The CRDs are 1.5 MB of YAML, a fifth of a second to parse. So `compact.json`, which `make docs` writes, contains the parts that
admission needs: it loads 50 times faster."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Final, Literal

import msgspec

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import EXPERIMENTAL_API, GATEWAY_API, KINDS, LASTHOP_API, Kind

Channel = Literal["standard", "experimental"]
BUNDLE_VERSION = "v1.7.0"
COMPACT: Final = "compact.json"


def schema(kind: Kind, version: str, channel: Channel = "experimental") -> Json:
    """Returns the OpenAPI v3 schema of one served version. It is shared: callers must not change it."""
    if kind.group in (GATEWAY_API, EXPERIMENTAL_API):
        crd = load(f"gateway-api/{channel}/{kind.group}_{kind.plural}.yaml")
    elif kind.group == LASTHOP_API:
        crd = load(f"lasthop/{kind.plural}.yaml")
    else:
        core: Json = load("core.yaml")[kind.kind]
        return core
    served = {v["name"]: v for v in crd["spec"]["versions"] if v["served"]}
    result: Json = served[version]["schema"]["openAPIV3Schema"]
    return result


def compact_schema(kind: Kind, version: str) -> Json:
    """Returns the schema of the experimental channel without prose and without the status, for admission."""
    decoded: Json = msgspec.json.decode(_compact()[f"{kind.kind} {version}"])
    return decoded


@cache
def _compact() -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(files(__name__).joinpath(COMPACT).read_bytes(), type=dict[str, msgspec.Raw])


def compacted() -> bytes:
    """Returns the content of `compact.json`."""
    served = {f"{kind.kind} {version}": (kind, version) for kind in KINDS.values() for version in kind.versions}
    schemas = {name: _without_prose(schema(*kind_version)) for name, kind_version in served.items()}
    for definition in schemas.values():
        definition["properties"].pop("status", None)
    return msgspec.json.encode(schemas, order="sorted") + b"\n"


def _without_prose(node: Json) -> Json:
    kept = {name: value for name, value in node.items() if name != "description"}
    for name, value in kept.items():
        if name == "properties":
            kept[name] = {field: _without_prose(below) for field, below in value.items()}
        elif isinstance(value, dict) and name in ("items", "not", "additionalProperties"):
            kept[name] = _without_prose(value)
        elif name in ("allOf", "anyOf", "oneOf"):
            kept[name] = [_without_prose(branch) for branch in value]
    return kept


@cache
def load(name: str) -> Json:
    import yaml

    content = files(__name__).joinpath(name).read_text("utf-8")
    loaded: Json = yaml.load(content, yaml.CSafeLoader)
    return loaded
