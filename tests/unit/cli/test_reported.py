"""`lasthop top` of a cluster: the reports of proxies to the leading controller."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import click
import pytest
import yaml

from lasthop.cli.views.leader import asking
from lasthop.run.controller import Controller
from tests.folders import lasthop
from tests.pods import PORT, cluster
from tests.web import shop


async def test_the_leading_controller_is_asked_through_the_api_server(tmp_path: Path) -> None:
    async with (
        cluster("lasthop-a", "lasthop-b", holder="lasthop-b") as (pods, client),
        shop.opened(shop.shop(), tmp_path / "s") as (view, port),
        asking(client, "lasthop-system") as ask,
    ):
        visited(view.controller)
        pods.listening["lasthop-b", PORT] = port
        traffic = await ask("/api/traffic")
        assert traffic["routes"] and any(hop["failures"] for hop in traffic["hops"])
        with pytest.raises(click.ClickException, match="through the admin socket"):
            await ask("/api/tap")
        pods.denied.add("portforward")
        with pytest.raises(click.ClickException, match="request get and create on pods/portforward"):
            await ask("/api/traffic")


def visited(controller: Controller) -> None:
    wire = shop.Wire()
    shop.traffic(wire)
    wire.tell(controller)


async def test_top_shows_a_cluster_and_tap_names_the_commands_that_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        cluster("a", holder="a") as (pods, _),
        shop.opened(shop.shop(), tmp_path / "s") as (view, port),
    ):
        visited(view.controller)
        pods.listening["a", PORT] = port
        config = {
            "clusters": [{"name": "c", "cluster": {"server": pods.url}}],
            "users": [{"name": "u", "user": {"token": "a token"}}],
            "contexts": [{"name": "dev", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "dev",
        }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        top = await asyncio.to_thread(lasthop, "top")
        assert top.exit_code == 0 and "edge/web -> " in top.stdout and "failing: " in top.stdout
        whole = await asyncio.to_thread(lasthop, "top", "--context", "dev", "-o", "json")
        assert json.loads(whole.stdout)["hops"]
        unknown = await asyncio.to_thread(lasthop, "top", "--context", "nowhere")
        assert unknown.exit_code == 1 and "no context nowhere" in unknown.stderr
        tap = await asyncio.to_thread(lasthop, "tap")
        assert tap.exit_code == 1 and "lasthop top --context" in tap.stderr and "kubectl logs" in tap.stderr
