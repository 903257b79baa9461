"""`lasthop top` and `lasthop tap --failed` of a cluster: what proxies have reported to the controller that leads."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import yaml

from lasthop.cli.render.reported_failures import ReportedFailures, line
from lasthop.cli.views.leader import asking
from lasthop.engine.plan.observation import EndpointSeen
from lasthop.run.controller import Controller
from tests.folders import lasthop
from tests.pods import PORT, cluster
from tests.web import shop


def report(*endpoints: tuple[str, int, float], words: str = "certificate has expired") -> dict[str, Any]:
    seen = [{"address": a, "failures": n, "last_failure": last, "failure": words} for a, n, last in endpoints]
    hop = {"gateway": "shop/web", "kind": "Service", "backend": "shop/api", "port": 443, "protocol": "auto"}
    return {"hops": [{**hop, "endpoints": seen}]}


def test_only_what_was_added_since_the_last_look_is_told() -> None:
    seen = ReportedFailures()
    assert seen.news(report(("a", 5, 100.0))) == [], "there is nothing to compare with"
    assert seen.news(report(("a", 5, 100.0))) == []
    (more,) = seen.news(report(("a", 17, 102.0)))
    assert (more.endpoint, more.count, more.why) == ("a", 12, "certificate has expired")
    assert seen.news(report(("a", 17, 102.0))) == []


def test_counts_that_begin_anew_are_told_as_one_and_only_if_something_failed_since() -> None:
    seen = ReportedFailures()
    seen.news(report(("a", 500, 100.0)))
    assert [each.count for each in seen.news(report(("a", 3, 101.0)))] == [1]
    assert seen.news(report(("a", 2, 101.0))) == []
    assert [each.count for each in seen.news(report(("a", 2, 101.0), ("b", 400, 103.0)))] == [1]
    assert seen.news(report(("a", 2, 101.0), ("b", 400, 103.0), ("c", 9, 90.0))) == []


def test_a_line_names_the_backend_why_and_what_to_try_and_nothing_escapes() -> None:
    seen = ReportedFailures()
    seen.news(report(words="x"))
    (one,) = seen.news(report(("10.0.0.1:8443", 1, 100.0), words="certificate is for \x1b[2Jevil\n503"))
    shown = line(one)
    assert "shop/web -> shop/api:443 10.0.0.1:8443  certificate is for \\x1b[2Jevil\\n503" in shown
    assert shown.endswith("  (lasthop probe service/shop/api)") and "\x1b" not in shown
    assert one.named("api") and one.named("Service/shop/api") and one.named("") and not one.named("shop/web")


async def test_the_leading_controller_is_asked_through_the_api_server(tmp_path: Path) -> None:
    async with (
        cluster("lasthop-a", "lasthop-b", holder="lasthop-b") as (pods, client),
        shop.opened(shop.shop(), tmp_path / "s") as (view, port),
        asking(client, "lasthop-system") as ask,
    ):
        visited(view.controller)
        pods.listening["lasthop-b", PORT] = port
        found = await ask("/api/traffic")
        assert found["routes"] and any(hop["failures"] for hop in found["hops"])
        with pytest.raises(click.ClickException, match="by the admin socket"):
            await ask("/api/tap")
        pods.denied.add("portforward")
        with pytest.raises(click.ClickException, match="ask for get and create on pods/portforward"):
            await ask("/api/traffic")


def visited(controller: Controller) -> None:
    wire = shop.Wire()
    shop.traffic(wire)
    wire.tell(controller)


def fail_again(controller: Controller) -> None:
    """A proxy reports one failure more of each endpoint that fails."""
    (last,) = controller.observations.proxies(shop.WEB)
    now = time.time()

    def again(seen: EndpointSeen) -> EndpointSeen:
        return msgspec.structs.replace(seen, failures=seen.failures + 1, last_failure=now) if seen.in_a_row else seen

    hops = {hop: msgspec.structs.replace(seen, endpoints=tuple(map(again, seen.endpoints))) for hop, seen in last.hops.items()}
    controller.seen(msgspec.structs.replace(last, at=now, hops=hops))


async def test_top_and_tap_of_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        all_of_it = await asyncio.to_thread(lasthop, "tap")
        assert all_of_it.exit_code == 2 and "add --failed" in all_of_it.stderr and "kubectl logs" in all_of_it.stderr
        async with asyncio.TaskGroup() as tasks:
            tapping = tasks.create_task(asyncio.to_thread(lasthop, "tap", "--failed", "-c", "1", "-o", "json"))
            while not tapping.done():
                fail_again(view.controller)
                await asyncio.sleep(0.05)
        (told,) = (json.loads(each) for each in tapping.result().stdout.splitlines())
        assert told["why"] and told["count"] >= 1 and told["gateway"] == "edge/web"
