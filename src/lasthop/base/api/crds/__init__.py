"""Loads the schemas of objects: upstream's CRDs as shipped, our own CRDs, and those of Kubernetes' built-in kinds.

All CRDs together are 1.5 MB of YAML, a fifth of a second to parse; so each file is read when the first object of its kind
comes (HTTPRoute 70 ms, most others 10 ms) and kept.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import yaml

from lasthop.base.api.documents import Json
from lasthop.base.api.kinds import EXPERIMENTAL_API, GATEWAY_API, LASTHOP_API, Kind

Channel = Literal["standard", "experimental"]
BUNDLE_VERSION = "v1.7.0"


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


@cache
def load(name: str) -> Json:
    text = files(__name__).joinpath(name).read_text("utf-8")
    loaded: Json = yaml.load(text, yaml.CSafeLoader)
    return loaded
