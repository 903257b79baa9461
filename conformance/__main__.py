"""`python -m conformance build | run | selftest | install | observe | helm | upgrade | up | down | exec`."""

from __future__ import annotations

import argparse
import os
import sys

from conformance import installed, preflight, sandbox
from conformance.build import HELM, build, build_one
from conformance.children import say
from conformance.lasthop import WAYS
from conformance.node.images import SOURCE
from conformance.releases import CURRENT, RELEASES
from release.places import differing, root_folder
from release.versions import version


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance", description=__import__("conformance").__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build_ = commands.add_parser("build", help="build the servers and the suite into the cache folder")
    up = commands.add_parser("up", help="bring up a cluster with Lasthop, until Ctrl-C")
    run = commands.add_parser("run", help="run the conformance suite")
    selftest = commands.add_parser("selftest", help="check the node itself on a real cluster")
    install = commands.add_parser("install", help="check that an install for some namespaces works, with the least rights")
    observe = commands.add_parser("observe", help="check that what proxies see on the wire reaches the status")
    helm = commands.add_parser(
        "helm", help="check the chart with the real helm: lint, install, upgrade and rollback under load"
    )
    upgrade = commands.add_parser("upgrade", help="upgrade Lasthop from another commit and back, under load")
    upgrade.add_argument("before", metavar="REF", help="the commit, tag or branch to upgrade from")
    for command in (up, run, install, observe, helm, upgrade):
        command.add_argument(
            "--shipped", action="store_true", help="Pods have the file system of the image that `make image` built"
        )
    for command in (up, run, selftest, install, observe, helm, upgrade):
        command.add_argument("--channel", choices=["experimental", "standard"], default="experimental", help="of the CRDs")
    run.add_argument("--run", action="append", default=[], metavar="TEST", help="only this test (may be repeated)")
    run.add_argument("--profiles", type=_list, default=[], metavar="A,B", help="default: all GATEWAY-*")
    run.add_argument("--features", type=_list, default=[], metavar="A,B", help="default: those of the GatewayClass")
    for command in (build_, up, run):
        command.add_argument(
            "--suite", choices=RELEASES, default=CURRENT.version, help=f"of which release, with its CRDs ({CURRENT.version})"
        )
    for command in (up, run):
        command.add_argument(
            "--way", choices=WAYS, default=WAYS[0], help="how Lasthop is put on the cluster (conformance/lasthop.py)"
        )
    down = commands.add_parser("down", help="stop a cluster")
    down.add_argument("name", nargs="?", help="which, if there are several")
    execute = commands.add_parser("exec", help="run a command in the network of the newest cluster")
    execute.add_argument("argv", nargs=argparse.REMAINDER, metavar="command")
    arguments = parser.parse_args()
    try:
        return _COMMANDS[arguments.command](arguments)
    except preflight.Missing as missing:
        print(missing, file=sys.stderr)
        return 2


def _build(arguments: argparse.Namespace) -> int:
    for name, path in build(RELEASES[arguments.suite]).items():
        print(f"{name:24} {path}")
    return 0


def _prepare(suite: str = CURRENT.version) -> None:
    preflight.check()  # before minutes of building
    build(RELEASES[suite])


def _up(arguments: argparse.Namespace) -> int:
    _prepare(arguments.suite)
    code = sandbox.run("conformance.up:up", {"cluster": _versions(arguments), "way": arguments.way})
    return 0 if code == sandbox.STOPPED else code  # to be stopped is how it ends well


def _run(arguments: argparse.Namespace) -> int:
    _prepare(arguments.suite)
    order = {"cluster": _versions(arguments)}
    order |= {name: getattr(arguments, name) for name in ("run", "profiles", "features", "way")}
    if not arguments.run:
        say("A cluster, Lasthop on it, and the whole suite: about 4 minutes on 2 idle cores")
    return sandbox.run("conformance.run:suite", order)


def _selftest(arguments: argparse.Namespace) -> int:
    _prepare()
    return sandbox.run("conformance.node_selftest:check_node", {"cluster": {"channel": arguments.channel}})


def _install(arguments: argparse.Namespace) -> int:
    _prepare()
    order = {"channel": arguments.channel, "apiserver_flags": installed.FLAGS, "shipped": _shipped(arguments)}
    return sandbox.run("conformance.installed:check_rights", {"cluster": order})


def _observe(arguments: argparse.Namespace) -> int:
    _prepare()
    order = {"channel": arguments.channel, "shipped": _shipped(arguments)}
    return sandbox.run("conformance.observed:check_observed", {"cluster": order})


def _helm(arguments: argparse.Namespace) -> int:
    _prepare()
    order = {"channel": arguments.channel, "shipped": _shipped(arguments)}
    return sandbox.run("conformance.charted:check_chart", {"cluster": order, "helm": str(build_one(HELM))})


def _upgrade(arguments: argparse.Namespace) -> int:
    _prepare()
    before = version(arguments.before)
    order = {"channel": arguments.channel, "shipped": _shipped(arguments), "before": str(before.venv)}
    scenario = {"cluster": order, "helm": str(build_one(HELM)), "chart": str(before.chart), "commit": before.commit}
    return sandbox.run("conformance.upgraded:check_upgrade", scenario)


def _shipped(arguments: argparse.Namespace) -> str:
    if not arguments.shipped:
        return ""
    if not root_folder().exists():
        raise preflight.Missing("the image does not exist yet; build it with: make image")
    if other := differing(SOURCE, root_folder()):
        raise preflight.Missing(f"the image has another {other[0]} than this folder; build it with: make image")
    return str(root_folder())


def _versions(arguments: argparse.Namespace) -> dict[str, str]:
    return {"channel": arguments.channel, "suite": arguments.suite, "shipped": _shipped(arguments)}


def _list(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _down(arguments: argparse.Namespace) -> int:
    running = [run for run in sandbox.running() if arguments.name in (None, run.name)]
    if not running:
        print("No cluster is up")
        return 1
    if len(running) > 1:
        print("Several clusters are up; choose one:", *(run.name for run in running))
        return 1
    running[0].stop()
    return 0


def _exec(arguments: argparse.Namespace) -> int:
    running = sandbox.running()
    first = running[-1].first_process if running else None
    if first is None:
        print("No cluster is up; start one with: python -m conformance up")
        return 1
    os.environ["KUBECONFIG"] = str(running[-1].folder / "inside.kubeconfig")
    os.execvp("nsenter", ["nsenter", f"--net=/proc/{first}/ns/net", "--", *arguments.argv])


_COMMANDS = {
    **{"build": _build, "up": _up, "run": _run, "selftest": _selftest, "install": _install, "observe": _observe},
    **{"helm": _helm, "upgrade": _upgrade, "down": _down, "exec": _exec},
}

if __name__ == "__main__":
    sys.exit(main())
