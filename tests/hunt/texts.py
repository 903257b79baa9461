"""Writes texts of policies: good ones in all their spellings, and broken ones in every known way.

`GOOD` are read as policies. `NAMED` concern at least the Services that they should name; `HIDDEN` may name any Service,
because the end of the broken part is unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import yaml

FILLER = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {}\n  namespace: shop\ndata: {{}}\n"
FOREIGN = "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: app\n  namespace: shop\nspec: {}\n"


class Policy(NamedTuple):
    name: str
    namespace: str
    targets: tuple[str, ...]

    @property
    def services(self) -> tuple[str, ...]:
        return tuple(f"{self.namespace}/{target}" for target in self.targets)

    @property
    def text(self) -> str:
        targets = "".join(f'  - group: ""\n    kind: Service\n    name: {target}\n' for target in self.targets)
        return (
            "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\n"
            f"metadata:\n  name: {self.name}\n  namespace: {self.namespace}\nspec:\n  targetRefs:\n{targets}"
            "  validation:\n    hostname: api.example\n"
            '    caCertificateRefs:\n    - group: ""\n      kind: ConfigMap\n      name: ca\n'
        )


class Text(NamedTuple):
    text: str
    encoding: str = "utf-8"
    pad: int = 0


def documents(*texts: str) -> str:
    return "---\n".join(texts)


def value(text: str) -> Any:
    return yaml.safe_load(text)


def indented(text: str, by: str = "    ") -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


def listed(*texts: str, kind: str = "List", items: str = "items") -> str:
    return f"apiVersion: v1\nkind: {kind}\n{items}:\n" + "".join("- " + indented(text, "  ")[2:] for text in texts)


# --- good -------------------------------------------------------------------------------------------------------------

Spelling = Callable[[list[str], Random], Text]
"""Takes the documents of a file."""


def _json_list(texts: list[str], r: Random) -> Text:
    return Text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [value(text) for text in texts]}, indent=1))


def _nested(texts: list[str], r: Random) -> Text:
    inner = listed(*texts)
    return Text(
        listed(inner) if r.random() < 0.5 else listed(listed(FILLER.format(f"beside-{r.randrange(1 << 20)}")), listed(inner))
    )


GOOD: dict[str, Spelling] = {
    "plain": lambda texts, r: Text(documents(*texts)),
    "flow": lambda texts, r: Text(documents(*(json.dumps(value(text)) + "\n" for text in texts))),
    "json list": _json_list,
    "crlf": lambda texts, r: Text(documents(*texts).replace("\n", "\r\n")),
    "byte order mark": lambda texts, r: Text("\ufeff" + documents(*texts)),
    "list": lambda texts, r: Text(listed(*texts)),
    "nested list": _nested,
    "comments": lambda texts, r: Text("# kind: BackendTLSPolicy\n---\n# name: bravo\n---\n" + documents(*texts)),
    "foreign beside": lambda texts, r: Text(documents(FOREIGN, *texts)),
    "v1alpha3": lambda texts, r: Text(documents(*texts).replace("networking.k8s.io/v1\n", "networking.k8s.io/v1alpha3\n")),
    "quoted": lambda texts, r: Text(documents(*texts).replace("kind: BackendTLSPolicy", '"kind": "BackendTLSPolicy"')),
}


# --- broken -----------------------------------------------------------------------------------------------------------

Breakage = Callable[[str, Random], str]
"""Takes the document of one policy. Those beside it stay as they are."""


def swap(old: str, *new: str) -> Breakage:
    def broken(text: str, r: Random) -> str:
        assert old in text, text
        return text.replace(old, r.choice(new), 1)

    return broken


def _kind(*kinds: str) -> Breakage:
    return swap("kind: BackendTLSPolicy", *(f"kind: {kind}" for kind in kinds))


def _listed_as(kind: str, items: str = "items") -> Breakage:
    return lambda text, r: listed(text, kind=kind, items=items)


HIDDEN: dict[str, Breakage] = {
    "unclosed before": lambda text, r: "a: [\n" + text,
    "unclosed after": lambda text, r: text + "a: [\n",
    "bad indent": swap("\n  validation:", "\n   validation:", "\n validation:"),
    "tab": swap("\n  targetRefs:", "\n\ttargetRefs:"),
    "conflict": lambda text, r: f"<<<<<<< HEAD\n{text}=======\n{text.replace('api.ex', 'new.ex')}>>>>>>> theirs\n",
    "nul": lambda text, r: text.replace("spec", "sp\0ec"),
    "open quote": swap("api.example", '"api.example'),
    "template": lambda text, r: "{{- if .Values.tls }}\n" + text + "{{- end }}\n",
    "unknown alias": swap("api.example", "*host"),
    "two values": swap("hostname: api.example", "hostname: api.example: x"),
    "no space": swap("kind: BackendTLSPolicy", "kind:BackendTLSPolicy"),
    "other dashes": lambda text, r: FILLER.format("beside") + r.choice(("--\n", "- --\n")) + text,
}
NAMED: dict[str, Breakage] = {
    # Keys that are written twice.
    "lost separator": lambda text, r: text + FILLER.format("beside"),
    "lost separator above": lambda text, r: FILLER.format("beside") + text,
    "targetRefs twice": swap(
        "  validation:\n", '  targetRefs:\n  - group: ""\n    kind: Service\n    name: nobody\n  validation:\n'
    ),
    "target name twice": swap("  validation:\n", "    name: nobody\n  validation:\n"),
    "spec twice": lambda text, r: text + value_twice(text),
    "metadata twice": lambda text, r: text + "metadata:\n  name: other\n  namespace: default\n",
    "kind twice": lambda text, r: text + "kind: ConfigMap\n",
    # Lists.
    "items is a mapping": lambda text, r: "apiVersion: v1\nkind: List\nitems:\n" + indented(text, "  "),
    "Items": _listed_as("List", "Items"),
    "item": _listed_as("List", "item"),
    "objects": _listed_as("List", "objects"),
    "kind: list": _listed_as("list"),
    "kind: ListList": _listed_as("ListList"),
    "items twice": lambda text, r: listed(text) + "items: []\n",
    "items is a text": lambda text, r: "apiVersion: v1\nkind: List\nitems: |\n" + indented(text),
    "list without a kind": lambda text, r: listed(text).replace("kind: List\n", "", 1),
    "items in items": lambda text, r: "apiVersion: v1\nkind: List\nitems:\n- items:\n  - " + indented(text)[4:],
    "top-level list": lambda text, r: "- " + indented(text, "  ")[2:],
    "list in a list": lambda text, r: "apiVersion: v1\nkind: List\nitems:\n- - " + indented(text)[4:],
    # Namespaces.
    "namespace": swap("  namespace:", "  namspace:", "  Namespace:", "  nameSpace:", "  name-space:", "namespace:"),
    "metadata": swap("metadata:", "Metadata:", "metdata:", "meta:"),
    "name": swap("metadata:\n  name:", "metadata:\n  generateName:", "metadata:\n  nam:", "metadata:\n  name: 5 #"),
    "namespace is a list": swap("  namespace: ", "  namespace:\n  - "),
    # Kinds and versions.
    "kind": _kind(
        *("BackendTLSConfig", "BackendTlsPolicy", "backendtlspolicy", "BackendTLSPolicies", "BackendTLSPolcy", "BackendTLS"),
        *("XBackendTLSPolicy", "BackendTLSPolicyList", "|\n  BackendTLSPolicy", "[BackendTLSPolicy]", "{BackendTLSPolicy: }"),
        *("BackendTLSPol\u0456cy", "\u0412ackendTLSPolicy", "Backend\u200bTLSPolicy", "Backend\u00adTLSPolicy"),
        *("Backend-TLS-Policy", "Backend TLS Policy", "backendtlspolicies.gateway.networking.k8s.io"),
        *("BackendTLSPolicy2", '"BackendTLSPolicy "', "BackenTLSPolicy", "BackendTLSPolicyConfig", "BackendTLSRoute"),
    ),
    "Kind": swap("kind: BackendTLSPolicy", "Kind: BackendTLSPolicy", "kinds: BackendTLSPolicy", "kind:\n- BackendTLSPolicy"),
    "version": swap("k8s.io/v1\n", "k8s.io/v1alpha2\n", "k8s.io/v1beta1\n", "k8s.io/v2\n", "k8s.io\n"),
    "group": swap(
        "gateway.networking.k8s.io/v1", "gateway.example.com/v1", "networking.k8s.io/v1", "gateway.networking/v1", "v1"
    ),
    "no version": swap("apiVersion: gateway.networking.k8s.io/v1\n", "", "apiversion: gateway.networking.k8s.io/v1\n"),
    # Targets.
    "targetRefs": swap("  targetRefs:", "  targetrefs:", "  targetRef:", "  targets:", "  TargetRefs:"),
    "target kind": swap("kind: Service", "kind: Servce", "kind: Services", "kind: service", 'kind: "Service |"'),
    "target name": swap("\n  validation:", ",\n  validation:", "_\n  validation:", "/\n  validation:"),
    "target capital": lambda text, r: _capital(text),
    "target group": swap(
        'group: ""',
        "group: core",
        "group: v1",
        "group: /",
        "apiVersion: v1",
        "group: gateway.networking.k8s.io",
        "group: k8s.io",
    ),
    "target is a text": lambda text, r: _retargeted(text, r.choice(("  - {}\n", "    {}\n"))),
    "target field": lambda text, r: _retargeted(text, r.choice(("  - name: [{}]\n", "  - names: {}\n"))),
    "target with odd characters": lambda text, r: _retargeted(
        text, '  - group: ""\n    kind: Service\n    name: "{}' + r.choice((" ", "\u00a0", "\u200b", "\\n", "\\t")) + '"\n'
    ),
    "target with its surroundings": lambda text, r: _retargeted(
        text,
        '  - group: ""\n    kind: Service\n    name: '
        + r.choice(
            (
                "shop/{}",
                "service/{}",
                "{}.shop.svc.cluster.local",
                "{}.shop",
                "'{}:443'",
                "https://{}:443/",
                "shop/{}/",
                "{}/https",
                "{},nobody",
                "'{}*'",
            )
        )
        + "\n",
    ),
    "target of another namespace": lambda text, r: _from_elsewhere(text, r.choice(("namespace", "nameSpace", "namspace"))),
    "target is a mapping": swap('  - group: ""\n    kind', '    group: ""\n    kind'),
    "spec": swap("\nspec:", "\nSpec:", "\nspecs:", "\nstatus:"),
    # Fields.
    "field": swap("hostname: api.example", "hostnme: api.example", "hostname: 'not a name'", "hostname: []"),
    "mode": swap("  validation:", "  mode: Lenient\n  validation:"),
    # Spellings that some parsers accept.
    "merge": lambda text, r: text.replace("\nspec:", "\nspec:\n  <<: &x {}", 1),
    "merge over a name": swap("\n  validation:", "\n    <<: {name: nobody}\n  validation:"),
    "merge under a name": lambda text, r: re.sub(r"name: (\w+)\n  v", r"name: nobody\n    <<: {name: \1}\n  v", text),
    "merge twice": lambda text, r: re.sub(r"name: (\w+)\n  v", r"<<: {name: nobody}\n    <<: {name: \1}\n  v", text),
    "anchor": lambda text, r: text.replace("name: ca", "name: &x ca") + "status: *x\n",
    "tag": swap("kind: BackendTLSPolicy", "kind: !!str BackendTLSPolicy", "kind: !policy BackendTLSPolicy"),
    "escape": swap("kind: BackendTLSPolicy", 'kind: "Backend\\x54LSPolicy"', 'kind: "Backend\\\n  TLSPolicy"'),
    "merged kind": lambda text, r: text.replace("kind: BackendTLSPolicy\n", "x: &x\n  kind: BackendTLSPolicy\n<<: *x\n"),
    "mark inside": lambda text, r: FILLER.format("beside") + "---\n\ufeff" + text,
    "in a ConfigMap": lambda text, r: FILLER.format("beside").replace("data: {}", "data:\n  a: b") + indented(text, "  "),
    "in a template": lambda text, r: listed(text, kind="Template", items="objects").replace("v1", "template.example/v1", 1),
    "in a text": lambda text, r: (
        r.choice(("--- |\n", "--- >\n", "- |\n", "apiVersion: v1\nkind: List\nitems:\n- |\n")) + indented(text)
    ),
    "in a key": lambda text, r: "? |\n" + indented(text) + ": x\n",
    "split in two": swap("\nspec:", "\n---\nspec:", "\n...\nspec:"),
    "after many mistakes": lambda text, r: "a: 1\na: 2\n---\n" * 600 + text.replace("kind: B", "kind: b"),
    "end of documents": lambda text, r: FILLER.format("beside") + "...\n" + text,
}


def value_twice(text: str) -> str:
    """A second spec, for another Service."""
    spec = text[text.index("\nspec:") + 1 :]
    head, _, tail = spec.partition("    name: ")
    return f"{head}    name: nobody\n{tail.partition(chr(10))[2]}"


def _retargeted(text: str, target: str) -> str:
    """With targets that are written in another way."""
    head, _, rest = text.partition("  targetRefs:\n")
    listed, _, tail = rest.partition("  validation:")
    names = [line.partition("name: ")[2] for line in listed.splitlines() if "name: " in line]
    return f"{head}  targetRefs:\n{''.join(target.format(name) for name in names)}  validation:{tail}"


def _from_elsewhere(text: str, field: str) -> str:
    """A policy of another namespace, whose targets name theirs."""
    namespace = text.partition("  namespace: ")[2].partition("\n")[0]
    moved = text.replace(f"  namespace: {namespace}\n", "  namespace: elsewhere\n", 1)
    return moved.replace("    kind: Service\n", f"    kind: Service\n    {field}: {namespace}\n")


def _capital(text: str) -> str:
    head, _, tail = text.partition("    name: ")
    return f"{head}    name: {tail[:1].upper()}{tail[1:]}"


WHOLE_HIDDEN: dict[str, Callable[[str], Text]] = {
    "latin-1": lambda text: Text(text.replace("spec", "sp\xffec", 1), "latin-1"),
    "huge": lambda text: Text(text, pad=17 << 20),
}
WHOLE_NAMED: dict[str, Callable[[str], Text]] = {
    "utf-16": lambda text: Text(text, "utf-16"),
    "utf-16 without a mark": lambda text: Text(text, "utf-16-le"),
    "carriage returns": lambda text: Text(text.replace("\n", "\r")),
}
JSON_HIDDEN: dict[str, Callable[[str], str]] = {
    "json cut": lambda text: text[: text.index("targetRefs")],
    "json comma": lambda text: text.replace("{", "{,", 1),
    "json and more": lambda text: text + "}",
}
JSON_NAMED: dict[str, Callable[[str], str]] = {
    "json twice": lambda text: '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "first"}}\n' + text,
    "json items twice": lambda text: text.rstrip().removesuffix("}") + ', "items": []}',
    "json kind twice": lambda text: text.replace(
        '"kind": "BackendTLSPolicy"', '"kind": "BackendTLSPolicy", "kind": "ConfigMap"', 1
    ),
    "json escaped": lambda text: text.replace('"kind": "BackendTLSPolicy"', '"kind": "Backend\\u0054LSPolcy"', 1),
    "json items": lambda text: text.replace('"items"', '"Items"', 1),
    "json list of lists": lambda text: "[" + text + "]",
}
