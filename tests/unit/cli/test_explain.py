"""`lasthop explain` on a folder: finding the object, drawing the tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.folders import config_map, good_folder, lasthop, policy, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return good_folder(tmp_path / "objects")


def test_the_tree_has_places_and_marks(folder: Path) -> None:
    result = lasthop("explain", "httproute", "api", "--dir", folder)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:4] == [
        f"✓ HTTPRoute shop/api  {folder}/base.yaml:13",
        f"└─ ✓ Gateway shop/web: accepted  {folder}/base.yaml:6",
        "   ├─ ✓ served by listener http (port 80) for shop.example",
        "   ├─ ✓ rule 0: /*",
    ]
    assert f"TLS because of BackendTLSPolicy shop/api  {folder}/policy.yaml:1" in result.stdout


@pytest.mark.parametrize(
    "args",
    [
        ("backendtlspolicy", "api"),
        ("BackendTLSPolicies", "shop/api"),
        ("btlspolicy/shop/api",),
        ("backendtlspolicy/api", "-n", "shop"),
    ],
)
def test_an_object_is_understood_however_it_is_typed(folder: Path, args: tuple[str, ...]) -> None:
    result = lasthop("explain", *args, "--dir", folder)
    assert result.stdout.startswith("✓ BackendTLSPolicy shop/api")


def test_json_is_the_same_tree(folder: Path) -> None:
    document = json.loads(lasthop("explain", "svc", "api", "--dir", folder, "-o", "json").stdout)
    assert document["object"] == {"kind": "Service", "namespace": "shop", "name": "api"}
    assert document["because"][0]["text"] == "port 443 (https)"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("httprout", "api"), "did you mean httproute?"),
        (("httproute", "apy"), "did you mean shop/api?"),
        (("httproute", "api", "-n", "other"), "there is one in namespace shop"),
        (("secret", "x"), "there is no Secret x nor any other"),
        (("httproute",), "the name of the HTTPRoute is missing"),
        (("httproute", "a/api", "-n", "b"), "two namespaces"),
    ],
)
def test_missing_objects_are_reported_with_a_hint(folder: Path, args: tuple[str, ...], message: str) -> None:
    result = lasthop("explain", *args, "--dir", folder)
    assert result.exit_code != 0
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_without_a_gateway_and_a_folder_the_error_has_a_remedy(tmp_path: Path) -> None:
    result = lasthop("explain", "httproute", "api", env={"LASTHOP_RUN_DIR": str(tmp_path)})
    assert result.exit_code == 1
    assert "no gateway runs on this machine" in result.stderr


def test_a_folder_that_is_partly_broken_is_explained_as_far_as_it_goes(tmp_path: Path) -> None:
    folder = write(tmp_path / "objects", policy=policy(), ca=config_map(), broken="kind: [")
    result = lasthop("explain", "httproute", "api", "--dir", folder)
    assert result.exit_code == 0
    assert f"see: lasthop check {folder}" in result.stderr
