"""`lasthop proxy` with a real Envoy: xDS over mutual TLS, readiness, the drain, and the rights that a Pod has."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from lasthop.base.pki import authority as ca
from lasthop.base.pki.authority import Authority
from tests import reachable
from tests.servers import Patient, server
from tests.unit.proxy.pod_world import Controller, MountedSecret, get, lasthop_proxy, said, until
from tests.xds_envoy import GATEWAY, NODE, becomes, changes, cluster


@pytest.fixture
def backend() -> Iterator[int]:
    with server(None) as port:
        yield port


@pytest.fixture
async def controller(backend: int) -> AsyncIterator[Controller]:
    controller = Controller()
    controller.serve(backend)
    await controller.start()
    yield controller
    await controller.server.close()


@pytest.fixture
def secret(folder: Path, controller: Controller) -> MountedSecret:
    folder.chmod(0o755)
    secret = MountedSecret(folder / "certs")
    secret.write(controller.secret())
    return secret


async def test_it_gets_its_gateways_configuration_and_is_ready_then(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        assert (await get(controller.http))[0] == 200, "ready means that requests are answered"
        assert controller.heard.events == [f"connected {NODE}"]


async def test_a_prometheus_gets_envoys_own_metrics_where_the_kubelet_asks(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        assert (await get(controller.http))[0] == 200
        status, text = await get(proxy.ready_port, "/metrics")
        assert status == 200 and "# TYPE envoy_cluster_upstream_rq_total counter" in text
        assert (await get(proxy.ready_port, "/metrics"))[1] == text, "it is asked once in a few seconds"
        assert (await get(proxy.ready_port, "/stats"))[0] == 404


async def test_it_is_not_ready_without_a_controller(folder: Path, controller: Controller, secret: MountedSecret) -> None:
    await controller.server.close()
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await proxy.tried("upstream_cx_connect_fail")
        assert (await proxy.ready())[0] == 503


async def test_envoy_that_calls_itself_live_without_listeners_is_not_ready(
    folder: Path, controller: Controller, secret: MountedSecret, backend: int
) -> None:
    """As it does after 30 s without a controller, too."""
    controller.server.remove(GATEWAY)
    controller.server.update(GATEWAY, changes(*cluster("a", backend)))
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((503, "Envoy has no configuration yet\n"), proxy.ready)
        controller.serve(backend)
        await becomes((200, "ready\n"), proxy.ready)


async def test_another_gateways_certificate_gets_nothing(folder: Path, controller: Controller, secret: MountedSecret) -> None:
    secret.write(controller.secret("uid-of-another-gateway"))
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await proxy.tried("upstream_rq_total")
        assert (await proxy.ready())[0] == 503
        assert controller.heard.events == []


async def test_a_certificate_of_a_stranger_gets_nothing(folder: Path, controller: Controller, secret: MountedSecret) -> None:
    stranger = ca.renewed(None, time.time())
    secret.write(controller.secret(authority=stranger) | {"ca.crt": controller.authority.bundle})
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await proxy.tried("upstream_cx_destroy")
        assert (await proxy.ready())[0] == 503
        assert controller.heard.events == []


async def test_a_controller_that_is_not_ours_is_not_believed(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    secret.write(controller.secret() | {"ca.crt": ca.renewed(None, time.time()).bundle})
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await proxy.tried("ssl.fail_verify_error")
        assert controller.heard.events == []


async def test_another_proxys_certificate_cannot_pose_as_the_controller(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    """Same CA, wrong name."""
    from lasthop.edge.xds.credentials import MutualTls

    pair = ca.server_pair(controller.authority, ("something-else.svc",), time.time())
    controller.credentials = MutualTls(pair, controller.authority.bundle)
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await proxy.tried("ssl.fail_verify_san")
        assert controller.heard.events == []


async def test_both_ends_take_up_the_next_ca_without_a_restart(
    folder: Path, controller: Controller, secret: MountedSecret, backend: int
) -> None:
    old, new = controller.authority, ca.renewed(None, time.time())
    both = Authority((*old.issuers, *new.issuers))
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        envoy = proxy.envoy()

        async def reconnects() -> None:
            before = len(controller.heard.events)
            await controller.restart()
            controller.serve(backend)
            await controller.start()
            await until(lambda: f"connected {NODE}" in controller.heard.events[before:])
            await until(controller.synced)

        # 1. Both are trusted, the old one signs: the server first, as it would be before the kubelet has come round.
        controller.use(both)
        await reconnects()
        await proxy.takes_up(secret, controller.secret(authority=both))
        await reconnects()
        # 2. The new one signs, the server's certificate first, then the proxies'.
        controller.use(Authority((*new.issuers, *old.issuers)))
        await reconnects()
        await proxy.takes_up(secret, controller.secret(authority=new) | {"ca.crt": both.bundle})
        await reconnects()
        # 3. The old one is gone.
        controller.use(new)
        await proxy.takes_up(secret, controller.secret(authority=new))
        await reconnects()
        assert proxy.envoy() == envoy
        assert (await proxy.ready())[0] == 200
        assert (await get(controller.http))[0] == 200


async def test_a_renewed_certificate_does_not_touch_the_stream(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        await proxy.takes_up(secret, controller.secret())
        assert controller.heard.events == [f"connected {NODE}"]


async def test_sigterm_ends_readiness_first_and_lets_requests_finish(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    slow = Patient()
    with server(None, slow) as port:
        controller.serve(port)
        async with lasthop_proxy(folder, controller, secret, drain=6) as proxy, asyncio.TaskGroup() as tasks:
            await becomes((200, "ready\n"), proxy.ready)
            in_flight = tasks.create_task(get(controller.http))
            await asyncio.to_thread(slow.asked.wait)
            proxy.signal(signal.SIGTERM)
            await becomes((503, "stopping\n"), proxy.ready)
            slow.asked.clear()
            late = tasks.create_task(get(controller.http))  # a client that has not noticed it yet
            await asyncio.to_thread(slow.asked.wait)
            assert not in_flight.done()
            slow.told.set()
            assert await proxy.ended() == 0
        assert in_flight.result()[0] == late.result()[0] == 200
    with contextlib.suppress(OSError):
        assert (await get(controller.http))[0] == 0


async def test_a_second_signal_ends_it_at_once(folder: Path, controller: Controller, secret: MountedSecret) -> None:
    async with lasthop_proxy(folder, controller, secret, drain=60) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        proxy.signal(signal.SIGTERM)
        await becomes((503, "stopping\n"), proxy.ready)
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended(3) == 0


async def test_if_envoy_dies_it_ends_with_an_error(folder: Path, controller: Controller, secret: MountedSecret) -> None:
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        os.kill(proxy.envoy(), signal.SIGKILL)
        assert await proxy.ended() == 1
        assert said(folder)[-1] == {"event": "Envoy exited by itself", "level": "info", "exit_code": -9}


async def test_if_it_is_killed_envoy_dies_too_and_the_next_one_starts_in_the_same_folder(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        envoy = proxy.envoy()
        proxy.signal(signal.SIGKILL)
        await proxy.ended()
        await until(lambda: not _alive(envoy))
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)


async def test_failed_requests_are_on_standard_output_with_the_reason(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    line = {"status": 503, "flags": "UF", "tls_failure": "delayed connect error: Connection refused"}
    async with lasthop_proxy(folder, controller, secret) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        with (folder / "run" / "envoy" / "access.log").open("a") as log:
            log.write(json.dumps(line) + "\n")
        await until(lambda: (folder / "out").read_text().endswith("\n"))
        assert "why" in json.loads((folder / "out").read_text())


NO_RIGHTS = (
    *("setpriv", "--reuid=65532", "--regid=65532", "--clear-groups"),
    *("--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all", "--no-new-privs"),
)


@pytest.mark.program("setpriv")
@pytest.mark.program("unshare")
@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user")
async def test_it_runs_as_nobody_without_capabilities_on_a_read_only_root(
    folder: Path, controller: Controller, secret: MountedSecret
) -> None:
    for name in ("run", "spare"):
        (folder / name).mkdir()
    read_only = [f"mount --bind {folder}/run {folder}/run", "mount -o remount,bind,ro /", "! touch /x 2>/dev/null"]
    wrapper = (*reachable.wrapper([*reachable.mounts(folder / "spare"), *read_only]), *NO_RIGHTS)
    async with lasthop_proxy(folder, controller, secret, wrapper=wrapper) as proxy:
        await becomes((200, "ready\n"), proxy.ready)
        status = Path(f"/proc/{proxy.envoy()}/status").read_text()
        assert "Uid:\t65532\t65532" in status
        assert "CapEff:\t0000000000000000" in status and "CapBnd:\t0000000000000000" in status
        assert (await get(controller.http))[0] == 200
        proxy.signal(signal.SIGTERM)
        assert await proxy.ended() == 0


async def _status(answer: object) -> int:
    return (await answer)[0]  # type: ignore[misc,no-any-return]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
