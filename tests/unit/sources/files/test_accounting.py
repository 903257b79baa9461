"""A text counts as read only if all of it is accounted for: a text that hides a policy is refused, or unknown.

Each row is a text in which a person sees a BackendTLSPolicy for Service `b` of namespace `shop`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lasthop.base.api.policies import RejectedPolicy
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.source import Batch
from tests.file_texts import reload

POLICY = """\
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata:
  name: b
  namespace: shop
spec:
  targetRefs:
  - {group: "", kind: Service, name: b}
  validation: {hostname: b.example, wellKnownCACertificates: System}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: x, namespace: shop}\nspec: {ports: [{port: 80}]}\n"
DEPLOYMENT = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n"


def inside(text: str, spaces: int, dash: bool = True) -> str:
    """The text as an item of a list, or below a key."""
    lines = [" " * spaces + ("  " if dash else "") + line for line in text.splitlines()]
    if dash:
        lines[0] = " " * spaces + "- " + lines[0].lstrip()
    return "\n".join(lines) + "\n"


def a_list(items: str, kind: str = "List", version: str = "v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\n{items}"


ITEM = inside(POLICY, 0)
WITHOUT_KIND = POLICY.split("kind: BackendTLSPolicy\n")[1]
AS_JSON = json.dumps(
    {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "BackendTLSPolicy",
        "metadata": {"name": "b", "namespace": "shop"},
        "spec": {"targetRefs": [{"group": "", "kind": "Service", "name": "b"}], "validation": {"hostname": "b.example"}},
    }
)
HIDDEN = {
    # a key written twice
    "lost separator": POLICY + SERVICE,
    "lost separator before a foreign object": POLICY + DEPLOYMENT,
    "targetRefs twice": POLICY.replace("  validation", '  targetRefs: [{group: "", kind: Service, name: c}]\n  validation'),
    "target name twice": POLICY.replace("name: b}", "name: b, name: c}"),
    "spec twice": POLICY + "spec: {}\n",
    "items twice": a_list(f"items:\n{ITEM}items: []\n"),
    "kind twice": POLICY + "kind: Service\n",
    "namespace twice": POLICY.replace("namespace: shop", "namespace: shop\n  namespace: other"),
    "json, key twice": AS_JSON.replace('"spec"', '"kind": "Service", "spec"'),
    # Lists that cannot be split
    "items a mapping": a_list(f"items:\n{inside(POLICY, 2, dash=False)}"),
    "items a text": a_list(f"items: |\n{inside(POLICY, 2, dash=False)}"),
    "Items": a_list(f"Items:\n{ITEM}"),
    "item": a_list(f"item:\n{ITEM}"),
    "objects": a_list(f"objects:\n{ITEM}"),
    "kind list": a_list(f"items:\n{ITEM}", kind="list"),
    "kind LIST": a_list(f"items:\n{ITEM}", kind="LIST"),
    "kind Lst": a_list(f"items:\n{ITEM}", kind="Lst"),
    "typed list, items a mapping": a_list(
        f"items:\n{inside(POLICY, 2, dash=False)}", "BackendTLSPolicyList", "gateway.networking.k8s.io/v1"
    ),
    "no items": a_list("") + "metadata: {name: BackendTLSPolicy}\n",
    "List in a list, not split": a_list(f"items:\n{inside(a_list('item:' + chr(10) + ITEM), 0)}"),
    # objects inside others
    "inside a Template": f"apiVersion: template.openshift.io/v1\nkind: Template\nobjects:\n{ITEM}",
    "inside values": f"replicas: 2\nextraObjects:\n{ITEM}",
    "a list of objects": ITEM,
    "a text in a ConfigMap": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  p: |\n"
    + inside(POLICY, 4, dash=False),
    "swallowed by a quote": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  p: 'oops\n---\n"
    + POLICY.replace("\n", "\n    ")
    + "'\n",
    "a text in a foreign object": f"{DEPLOYMENT}spec:\n  args:\n  - |\n{inside(POLICY, 4, dash=False)}",
    "of another kind inside a Template": "apiVersion: template.openshift.io/v1\nkind: Template\nobjects:\n"
    + ITEM.replace("BackendTLSPolicy", "TLSPolicy"),
    "of another kind in a text": f"{DEPLOYMENT}spec:\n  args:\n  - |\n"
    + inside(POLICY.replace("BackendTLSPolicy", "TLSPolicy"), 4, dash=False),
    **{
        f"with {field} in a text, beside items without a kind": a_list(
            "items:\n" + "".join(inside(WITHOUT_KIND.replace("name: b", f"name: {name}"), 0) for name in "cd"),
            "BackendTLSPolicyList",
            "gateway.networking.k8s.io/v1",
        )
        + f"---\n{DEPLOYMENT}spec:\n  args:\n  - |\n{inside(POLICY.replace('targetRefs', field), 4, dash=False)}"
        for field in ("targetRefs", "targetrefs")
    },
    "JSON in a text": f"{DEPLOYMENT}spec:\n  args: ['{AS_JSON}']\n",
    # kinds and versions
    **{
        f"kind {kind}": POLICY.replace("BackendTLSPolicy", kind)
        for kind in (
            *("BackendTLSConfig", "BackendTlsPolicy", "backendtlspolicy", "BackendTLSPolicies", "BackendTSLPolicy"),
            *("BackendTLS", "BackendPolicy", "BakendTLSPolicy", "TLSPolicy", "BackendTLSPolicy v1", "TransportPolicy"),
        )
    },
    "core kind": POLICY.replace("BackendTLSPolicy", "BackendPolcyTLS").replace("gateway.networking.k8s.io/v1", "v1"),
    "kind missing": POLICY.replace("kind: BackendTLSPolicy\n", ""),
    "Kind": POLICY.replace("kind: Back", "Kind: Back"),
    "kind a list": POLICY.replace("kind: BackendTLSPolicy", "kind: [BackendTLSPolicy]"),
    "swapped": POLICY.replace("apiVersion: gateway.networking.k8s.io/v1", "apiVersion: BackendTLSPolicy").replace(
        "kind: BackendTLSPolicy", "kind: gateway.networking.k8s.io/v1"
    ),
    "v1alpha2": POLICY.replace("k8s.io/v1", "k8s.io/v1alpha2"),
    "v9": POLICY.replace("k8s.io/v1", "k8s.io/v9"),
    "foreign group": POLICY.replace("gateway.networking.k8s.io/v1", "gateway.example.com/v1"),
    # namespaces
    "namspace": POLICY.replace("namespace: shop", "namspace: shop"),
    "Namespace": POLICY.replace("namespace: shop", "Namespace: shop"),
    "Metadata": POLICY.replace("metadata:", "Metadata:"),
    "namespace too far left": POLICY.replace("  namespace: shop", "namespace: shop"),
    "namespace in spec": POLICY.replace("  namespace: shop\n", "").replace("spec:\n", "spec:\n  namespace: shop\n"),
    # targets
    "targetrefs": POLICY.replace("targetRefs", "targetrefs"),
    "targetRef": POLICY.replace("targetRefs:\n  - ", "targetRef: "),
    "target a mapping": POLICY.replace("targetRefs:\n  - ", "targetRefs: "),
    "target a text": POLICY.replace('- {group: "", kind: Service, name: b}', "- b"),
    "targets too far left": POLICY.replace("  targetRefs:\n  - ", "targetRefs:\n- "),
    # texts
    "tab": POLICY.replace("  namespace", "\tnamespace"),
    "bad indent": POLICY.replace("  namespace", "   namespace"),
    "conflict markers": f"<<<<<<< ours\n{POLICY}=======\n>>>>>>> theirs\n",
    "template": POLICY.replace("name: b\n", "name: {{ .Values.name }}\n"),
    "nul": POLICY.replace("name: b\n", "name: b\0\n"),
    "cut": POLICY[:-40],
    **{f"cut after {size} characters": POLICY[:size] for size in range(len("apiVersion: gateway"), len(POLICY) - 30, 7)},
    "text after the end": f"...\nx\n{POLICY}",
    "one more bracket": POLICY + "]\n",
}
"""By what hides the policy."""


def file_of(folder: Path, text: str) -> Path:
    return folder / ("p.json" if text.startswith(("{", "[")) else "p.yaml")


def read(folder: Path, text: str) -> Batch:
    file_of(folder, text).write_text(text)
    return reload(Loader(folder))


def is_guarded(batch: Batch) -> bool:
    """Whether Service `b` of namespace `shop` cannot become plaintext."""
    refused = [obj for obj in batch.changes.values() if isinstance(obj, RejectedPolicy) and obj.metadata.namespace == "shop"]
    named = any(target.name == "b" for policy in refused for target in policy.targets)
    return named or any(unknown_part.namespace in ("", "shop") for unknown_part in batch.unknown)


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_a_hidden_policy_is_named_or_leaves_its_namespace_unknown(tmp_path: Path, text: str) -> None:
    batch = read(tmp_path, text)
    assert is_guarded(batch)
    assert batch.findings and all(finding.line for finding in batch.findings), "left out silently"


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_an_older_text_in_force_changes_nothing_of_that(tmp_path: Path, text: str) -> None:
    older = AS_JSON.replace('"b"', '"c"') if text.startswith("{") else SERVICE
    file_of(tmp_path, text).write_text(older)
    loader = Loader(tmp_path)
    reload(loader)
    file_of(tmp_path, text).write_text(text)
    assert is_guarded(reload(loader))


@pytest.mark.parametrize("text", HIDDEN.values(), ids=HIDDEN.keys())
def test_nor_do_good_objects_beside_it(tmp_path: Path, text: str) -> None:
    assert is_guarded(read(tmp_path, f"[{text}]" if text.startswith("{") else f"{SERVICE}---\n{text}"))


GOOD = {
    "a policy": POLICY,
    "in a List": a_list(f"items:\n{ITEM}"),
    "in a List in a List": a_list(f"items:\n{inside(a_list('items:' + chr(10) + ITEM), 0)}"),
    "in a typed List": a_list(f"items:\n{ITEM}", "BackendTLSPolicyList", "gateway.networking.k8s.io/v1"),
    "in a typed List in a List": a_list(
        "items:\n"
        + inside(
            a_list(
                "items:\n" + inside(WITHOUT_KIND, 0),
                "BackendTLSPolicyList",
                "gateway.networking.k8s.io/v1",
            ),
            0,
        )
    ),
    "with CRLF": POLICY.replace("\n", "\r\n"),
    "with a BOM": f"\ufeff{POLICY}",
}


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD.keys())
def test_a_policy_that_is_read_leaves_nothing_unknown(tmp_path: Path, text: str) -> None:
    batch = read(tmp_path, text)
    assert batch.policies_known and batch.findings == ()
    assert [key.path for key in batch.changes if key.kind == "BackendTLSPolicy"] == ["shop/b"]


MENTIONS = {
    "a comment": "# kind: BackendTLSPolicy\n" + SERVICE,
    "commented out": "".join(f"# {line}\n" for line in POLICY.splitlines()),
    "a name": SERVICE.replace("name: x", "name: backendtls-demo"),
    "a copy by kubectl": POLICY.replace(
        "  name: b\n",
        "  name: b\n  annotations:\n    kubectl.kubernetes.io/last-applied-configuration: '" + AS_JSON + "'\n",
    ),
    "a role": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: x}\nrules:\n"
    "- {apiGroups: [gateway.networking.k8s.io], resources: [backendtlspolicies], verbs: [get]}\n",
    "a CRD": "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"
    "spec: {names: {kind: BackendTLSPolicy, listKind: BackendTLSPolicyList, plural: backendtlspolicies}}\n",
    "a patch": "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
    "patches: [{path: p.yaml, target: {kind: BackendTLSPolicy, name: x}}]\n",
    "another policy": "apiVersion: gateway.envoyproxy.io/v1alpha1\nkind: BackendTrafficPolicy\nmetadata: {name: x}\n",
    "another list": "apiVersion: example.com/v1\nkind: IPAllowList\nmetadata: {name: x}\nspec: {}\n",
    "a list of Deployments": a_list(f"items:\n{inside(DEPLOYMENT, 0)}"),
    "a kubeconfig": "apiVersion: v1\nkind: Config\nclusters: []\n",
}


@pytest.mark.parametrize("text", MENTIONS.values(), ids=MENTIONS.keys())
def test_a_mere_mention_is_not_a_policy(tmp_path: Path, text: str) -> None:
    batch = read(tmp_path, text)
    assert batch.policies_known and batch.findings == ()
