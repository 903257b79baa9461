from __future__ import annotations

from pathlib import Path

import pytest

from conformance.node.images import Image, Images
from conformance.node.security import CAPABILITIES, NotAllowed, security
from conformance.node.unsupported import unsupported
from tests.unit.conformance.objects import mk_container, mk_pod


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images({"echo-basic": tmp_path / "echo-basic"}, source=tmp_path)


def test_drop_all_leaves_nothing_but_what_is_added() -> None:
    dropped = mk_container(securityContext={"capabilities": {"drop": ["ALL"]}})
    assert security(mk_pod(dropped), dropped, 0).capabilities == set()
    added = mk_container(securityContext={"capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}})
    assert security(mk_pod(added), added, 0).capabilities == {CAPABILITIES["NET_BIND_SERVICE"]} == {10}


def test_the_containers_user_beats_the_pods_and_that_beats_the_images() -> None:
    plain, own = mk_container(), mk_container(securityContext={"runAsUser": 3})
    assert security(mk_pod(plain), plain, 1).uid == 1
    assert security(mk_pod(plain, security={"runAsUser": 2}), plain, 1).uid == 2
    assert security(mk_pod(own, security={"runAsUser": 2}), own, 1).uid == 3


def test_run_as_non_root_refuses_an_image_that_runs_as_root() -> None:
    pod = mk_pod(security={"runAsNonRoot": True})
    with pytest.raises(NotAllowed, match="image will run as root"):
        security(pod, pod["spec"]["containers"][0], image_user=0)
    assert security(pod, pod["spec"]["containers"][0], image_user=65532).uid == 65532


def test_images_are_known_by_their_last_part(images: Images) -> None:
    image = images.find("registry.example/gateway-api/conformance/echo-basic:v0.2.0")
    assert isinstance(image, Image) and image.entrypoint == ("/echo-basic",)
    assert images.find("lasthop:dev") is images.find("example.com/x/lasthop@sha256:00")
    assert images.find("example.com/not-lasthop:1") is None
    assert images.find("registry.example/coredns/coredns:v1.12.2") is None, "it was not built for this release's suite"


def test_missing_features_of_the_node_are_reported_before_the_pod_starts(images: Images) -> None:
    container = mk_container("nginx", lifecycle={"preStop": {}}, readinessProbe={"exec": {}})
    pod = mk_pod(
        container, volumes=[{"name": "v", "hostPath": {}}], security={"sysctls": [{"name": "kernel.sem"}]}, hostNetwork=True
    )
    problems = "; ".join(unsupported(pod, images))
    for part in ("kernel.sem", "hostNetwork", "v: hostPath", "image nginx", "readinessProbe", "lifecycle"):
        assert part in problems
    assert unsupported(mk_pod(), images) == []


def test_another_version_is_an_image_of_its_own(tmp_path: Path) -> None:
    images = Images({}, source=tmp_path, before=tmp_path / "venv")
    before, now = images.find("registry.example/lasthop:before"), images.find("registry.example/lasthop:after")
    assert before
    assert now
    assert before.entrypoint == (str(tmp_path / "venv/bin/lasthop"),)
    assert "PYTHONPATH" not in before.env, "nothing of this repository"
    assert now.env["PYTHONPATH"] == str(tmp_path)
