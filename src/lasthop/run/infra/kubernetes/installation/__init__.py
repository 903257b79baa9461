"""Renders the manifests that install Lasthop. The YAML beside this file is the only source: `lasthop install` fills it in, and
the Helm chart in `deploy/chart` is generated from it (`make docs`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from importlib.resources import files
from string import Template
from typing import Final

import msgspec
import yaml

from lasthop.base.api.documents import Json, nested
from lasthop.edge.kubernetes.client import path_of

NAMESPACE: Final = "lasthop-system"
GATEWAYS: Final = "22-rbac-gateways.yaml"
"""The only file that differs between an installation for all namespaces and one for some."""
CRDS: Final = ("gatewayprofiles.yaml", "pinsets.yaml", "verificationwaivers.yaml")


class Options(msgspec.Struct, frozen=True):
    image: str
    namespace: str = NAMESPACE
    replicas: int = 2
    watched: tuple[str, ...] = ()
    """The watched namespaces; empty: all."""


def default_image() -> str:
    return f"ghcr.io/lasthop/lasthop:{version('lasthop')}"


def sources() -> dict[str, str]:
    """Returns the texts by file name, in the order of application."""
    folder = files(__name__)
    return {f.name: f.read_text("utf-8") for f in sorted(folder.iterdir(), key=lambda f: f.name) if f.name.endswith(".yaml")}


def crds() -> dict[str, str]:
    folder = files("lasthop.base.api.crds").joinpath("lasthop")
    return {name: folder.joinpath(name).read_text("utf-8") for name in CRDS}


def for_namespace(cluster_wide: str, watched: str) -> str:
    """Converts ClusterRoles into Roles with the same rules."""
    return cluster_wide.replace("ClusterRole", "Role").replace("metadata:\n", f"metadata:\n  namespace: {watched}\n")


def rendered(options: Options) -> str:
    """Returns all manifests as one stream of YAML documents, with comments."""
    values = {
        "namespace": options.namespace,
        "image": options.image,
        "replicas": options.replicas,
        "watched": ",".join(options.watched),
        "webhook": "",
    }
    texts = [*crds().values(), _namespace(options.namespace)]
    for name, text in sources().items():
        variants = [for_namespace(text, w) for w in options.watched] if name == GATEWAYS and options.watched else [text]
        texts += [Template(variant).substitute(values) for variant in variants]
    return "---\n".join(texts)


PLURALS: Final = {"NetworkPolicy": "networkpolicies", "GatewayClass": "gatewayclasses"}


def path(document: Json) -> str:
    group, _, api_version = document["apiVersion"].rpartition("/")
    kind, metadata = document["kind"], document["metadata"]
    return path_of(group, api_version, PLURALS.get(kind, f"{kind.lower()}s"), metadata.get("namespace", ""), metadata["name"])


CONTROLLER: Final = "lasthop-controller"
WATCH_FLAG: Final = "--namespaces"
"""A flag of `lasthop controller`."""


def helm_release(controller: Json | None) -> str:
    """Returns the Helm release of a Deployment; empty: none."""
    return nested(controller or {}, "metadata", "annotations", "meta.helm.sh/release-name") or ""


def watched_by(controller: Json | None) -> list[str]:
    """Returns the namespaces to which an installed controller is limited; none: it watches all, or is not installed."""
    containers, flag = nested(controller or {}, "spec", "template", "spec", "containers") or (), f"{WATCH_FLAG}="
    arguments = (argument for container in containers for argument in container.get("args") or ())
    watched = ",".join(argument.removeprefix(flag) for argument in arguments if argument.startswith(flag))
    return list(filter(None, watched.split(",")))


RBAC: Final = ("clusterrolebindings", "clusterroles", "rolebindings", "roles")
"""In the order of deletion: a binding before its role."""
GATEWAYS_ROLE: Final = "lasthop-gateways"
OWN_LABEL: Final = "app.kubernetes.io/part-of=lasthop"


def surplus(options: Options, objects: Mapping[str, Iterable[Json]]) -> list[str]:
    """Returns the paths of labelled RBAC objects from an earlier installation that this one no longer has."""
    kept = {path(document) for document in documents(options)}
    paths = []
    for plural, items in objects.items():
        for item in items:
            metadata = item["metadata"]
            where = path_of("rbac.authorization.k8s.io", "v1", plural, metadata.get("namespace", ""), metadata["name"])
            other_subjects = [s for s in item.get("subjects") or () if s.get("namespace") != options.namespace]
            if metadata["name"] == GATEWAYS_ROLE and where not in kept and not other_subjects:
                paths.append(where)
    return paths


def documents(options: Options) -> list[Json]:
    return [document for document in yaml.safe_load_all(rendered(options)) if document]


def crd_documents() -> list[Json]:
    return [yaml.safe_load(text) for text in crds().values()]


def _namespace(name: str) -> str:
    return f"apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n"
