"""Chooses the target of a command: a folder, the gateway that runs on this machine, or a cluster.

1. An explicit target wins: a folder, a gateway by --admin, or a cluster by --context or --kubeconfig.
2. Otherwise the gateway that runs on this machine; for `kubectl lasthop`, the cluster.
3. Otherwise the cluster of the current kubeconfig context.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final, NamedTuple

import click

from lasthop.base.text.suggestions import closest
from lasthop.cli.args import jsonpath, paths
from lasthop.cli.render.terminal import note
from lasthop.edge.unix_http import Endpoint

Option = Callable[[Callable[..., Any]], Callable[..., Any]]
_ALLOWED = "lasthop.allow_files"
_ADMIN = "lasthop.admin"
_RUNNING = "lasthop.running"
PATH: Final = click.Path(path_type=Path)
TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
CLUSTER = "the cluster"
NAMESPACE = "lasthop-system"
"""Default namespace of the controller."""
PLUGIN = "kubectl lasthop"
"""Name of the command as a plugin of kubectl."""


class ClusterOptions(NamedTuple):
    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    all_namespaces: bool = False

    @property
    def named(self) -> bool:
        """Whether a cluster is selected. -A does not: a folder and a gateway have namespaces too."""
        return bool(self.kubeconfig or self.context)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds kubectl's options to a command that can read a cluster; the command receives them as `cluster`."""

    @functools.wraps(command)
    def wrapper(
        kubeconfig: Path | None, context: str | None, namespace: str | None, all_namespaces: bool, **arguments: Any
    ) -> Any:
        # As kubectl does it: -A wins.
        chosen = None if all_namespaces else namespace
        return command(cluster=ClusterOptions(kubeconfig, context, chosen, all_namespaces), **arguments)

    return add_options(
        wrapper,
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces, of a cluster too."),
        click.option(
            "-n", "--namespace", metavar="NS", help="Only this namespace.  [default: all; for a cluster, the context's]"
        ),
        click.option("--kubeconfig", type=PATH, metavar="FILE", help="Read the cluster of this kubeconfig."),
        click.option("--context", metavar="NAME", help="Read the cluster of this kubeconfig context."),
    )


def add_options(command: Callable[..., Any], *options: Option) -> Callable[..., Any]:
    """Adds options; help lists them in reverse order."""
    return functools.reduce(lambda decorated, option: option(decorated), options, command)


def controller_namespace(help: str) -> Option:
    return click.option("--controller-namespace", default=NAMESPACE, show_default=True, metavar="NS", help=help)


def controller(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of a command that queries the controller of a cluster; the command receives them as `cluster` and
    `namespace`."""

    @functools.wraps(command)
    def wrapper(kubeconfig: Path | None, context: str | None, **arguments: Any) -> Any:
        return command(cluster=ClusterOptions(kubeconfig, context), **arguments)

    return add_options(
        wrapper,
        click.option(
            "-n", "--namespace", default=NAMESPACE, show_default=True, metavar="NS", help="Where the controller runs."
        ),
        click.option("--kubeconfig", type=PATH, metavar="FILE", help="The cluster of this kubeconfig."),
        click.option("--context", metavar="NAME", help="The controller in the cluster of this kubeconfig context."),
    )


def _hidden_option(key: str, *names: str, convert: Callable[[Any], Any] = lambda value: value, **settings: Any) -> Option:
    """Returns an option that the command does not receive: functions of this module look it up."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> None:
        context.meta[key] = convert(value)

    return click.option(*names, expose_value=False, callback=keep, **settings)


def _address(value: str | None) -> tuple[str, int] | None:
    from lasthop.cli.args.values import host_port

    return None if value is None else host_port(value, "--admin")


allow_files: Final = _hidden_option(
    _ALLOWED,
    "--allow-files",
    multiple=True,
    type=PATH,
    envvar="LASTHOP_ALLOW_FILES",
    metavar="PATH",
    help="Allow lasthop.dev/file.KEY to name files at or below PATH, not only below DIR.  [may be repeated]",
)
"""Option of commands that read a folder; `allowed_files` returns its values."""
admin: Final = _hidden_option(
    _ADMIN,
    "--admin",
    convert=_address,
    metavar="HOST:PORT",
    help="The gateway or controller with this admin address, for example that of a port-forward.",
)
"""Option that selects a gateway by its admin address; `admin_socket` returns it."""
on_folder: Final = _hidden_option(
    _RUNNING, "--dir", type=PATH, metavar="DIR", help="Query the gateway that runs on this folder."
)
"""Option of a command whose argument is a folder: it selects the gateway that runs on a folder instead."""


def folder_or_dir(folder: Path | None, by_option: Path | None) -> Path | None:
    """Returns the folder of a command that accepts it as DIR and as --dir DIR."""
    if folder and by_option and folder.resolve() != by_option.resolve():
        raise click.UsageError(f"two folders: {folder} and {by_option}")
    return folder or by_option


def is_plugin() -> bool:
    """Returns whether kubectl has started the program (`kubectl lasthop`), which selects a cluster."""
    context = click.get_current_context(silent=True)
    return bool(context and context.find_root().info_name == PLUGIN)


def gateway_named() -> bool:
    """Returns whether the options select a running gateway: --admin, or --dir where the argument is a folder."""
    context = click.get_current_context(silent=True)
    return bool(context and (context.meta.get(_ADMIN) or context.meta.get(_RUNNING)))


folders: Final = click.argument("folders", metavar="[DIR]...", nargs=-1, type=PATH)
"""More than one if a shell has expanded `*.yaml`."""
files: Final = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=PATH,
    metavar="FILE",
    help="Read this file or folder; - is standard input.  [may be repeated]",
)


def allowed_files() -> tuple[Path, ...]:
    context = click.get_current_context(silent=True)
    return context.meta.get(_ALLOWED, ()) if context else ()


read_folder: Final = click.option(
    "--dir",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Read this folder, whether or not a gateway runs on it.",
)
same_folder: Final = click.option("--dir", "by_option", type=PATH, metavar="DIR", help="The same as DIR.")
running_folder: Final = click.option("--dir", "folder", type=PATH, metavar="DIR", help="The gateway that runs on this folder.")


def running_gateway(folder: Path | None, elsewhere: str) -> Endpoint:
    """Returns the admin socket of the gateway that runs on this machine, for data that only it has. Its errors contain
    `elsewhere`, the alternative in a cluster."""
    socket = admin_socket(folder, ClusterOptions())
    if socket is None:
        others = f" ({hint})" if (hint := paths.others_hint()) else ""
        left = "; a killed gateway may have left proxies; list them: lasthop ps" if paths.left_behind() else ""
        raise click.ClickException(f"no gateway runs on this machine{others}; in a cluster, {elsewhere}{left}")
    return socket if isinstance(socket, Path) else _socket_of(*socket) or socket


def _socket_of(host: str, port: int) -> Path | None:
    """Returns the socket of the local gateway with that admin address. The socket shows its user more than the address shows
    everyone."""
    from lasthop.cli.args import local

    sockets = (gateway.run_dir / paths.ADMIN_SOCKET for gateway in local.at_address(host, port))
    return next((socket for socket in sockets if socket.exists()), None)


def admin_address() -> tuple[str, int] | None:
    address: tuple[str, int] | None = click.get_current_context().meta.get(_ADMIN)
    return address


JSONPATH: Final = "jsonpath="


def output(*formats: str, help: str | None = None) -> Callable[..., Any]:
    """Adds the option that chooses a format; the first is the default."""
    return click.option("-o", "--output", type=_Format(formats), default=formats[0], show_default=True, help=help)


class _Format(click.Choice[str]):
    """Accepts `jsonpath=PATH` beside json. Errors about kubectl's templates name the replacement."""

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if ctx and value.startswith(JSONPATH) and "json" in self.choices:
            try:
                jsonpath.choose(ctx, value.removeprefix(JSONPATH))
            except jsonpath.JSONPathError as error:
                self.fail(str(error), param, ctx)
            return "json"
        if value.startswith(("jsonpath", "go-template", "custom-columns")) and "json" in self.choices:
            self.fail("kubectl's templates are not supported; use: -o jsonpath=.a.b[0], or -o json | jq")
        return str(super().convert(value, param, ctx))

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        shown = (*self.choices, f"{JSONPATH}PATH") if "json" in self.choices else self.choices
        return f"[{'|'.join(shown)}]"


def _takes_cluster() -> bool:
    context = click.get_current_context(silent=True)
    return context is None or any("--context" in parameter.opts for parameter in context.command.params)


def admin_socket(folder: Path | None, cluster: ClusterOptions) -> Endpoint | None:
    """Returns the admin socket, or address, of the gateway to query; None: the cluster."""
    meta = context.meta if (context := click.get_current_context(silent=True)) else {}
    address: tuple[str, int] | None = meta.get(_ADMIN)
    running: Path | None = meta.get(_RUNNING)
    if sum((address is not None, running is not None, folder is not None, cluster.named)) > 1:
        raise click.UsageError("more than one of a folder, a gateway and a cluster is given; remove all but one of them")
    if named := running or folder:
        return paths.running(named)
    if address is not None or cluster.named:
        return address
    return _default()


def _default() -> Path | None:
    """Returns the admin socket of the only gateway that runs on this machine; None: the cluster."""
    if is_plugin() and configured():
        return None
    if sockets := paths.all_running():
        return _only(sockets)
    if not configured() and _takes_cluster():
        raise click.ClickException(_no_target_message())
    return None


def _only(sockets: list[Path]) -> Path:
    """Returns the socket of the only running gateway, and prints which gateway that is."""
    if len(sockets) > 1:
        cluster_too = ", or a cluster with --context" if _takes_cluster() else ""
        raise click.ClickException(
            f"several gateways run on this machine; choose a folder with --dir DIR{cluster_too}; lasthop ps lists them"
        )
    set_too = os.environ.get("KUBECONFIG") and _takes_cluster()
    others = ", not the cluster of $KUBECONFIG; choose that with --context" if set_too else ""
    where = paths.folder_of(sockets[0].parent) or "this machine"
    note(f"Reading the gateway that runs on {where}{_whose(sockets[0])}{others}")
    return sockets[0]


def _no_target_message() -> str:
    left = "; a killed gateway may have left proxies; list them: lasthop ps" if paths.left_behind() else ""
    left += f"; {hint}" if (hint := paths.others_hint()) else ""
    return (
        f"no gateway runs on this machine and there is no kubeconfig; {_folder()}start a gateway with: lasthop run DIR, "
        f"or choose a cluster with --kubeconfig or --context{left}"
    )


def _folder() -> str:
    """Returns the advice to read a folder, for commands that can."""
    context = click.get_current_context(silent=True)
    names = {option for parameter in context.command.params for option in parameter.opts} if context else set[str]()
    if context is None or "--allow-files" not in names:
        return ""
    return f"read a folder with: {context.command_path} DIR, " if "folders" in names else "read a folder with --dir DIR, "


def _whose(socket: Path) -> str:
    uid = socket.parent.stat().st_uid
    return "" if uid == os.geteuid() else f", of user {paths.user_name(uid)}"


def require_namespace(namespace: str, existing: Collection[str], where: str) -> None:
    """Raises if a namespace does not exist, unless the user may not list those of the cluster."""
    names = sorted(set(existing) - {""})
    if namespace in names or (not names and where == CLUSTER):
        return
    close = closest(namespace, names)
    hint = (
        f"did you mean {close}?" if close else f"there is {', '.join(names[:8]) or 'none'}{', ...' if len(names) > 8 else ''}"
    )
    elsewhere = "" if where == CLUSTER else "; choose a cluster with --context"
    raise click.ClickException(f"there is no namespace {namespace} in {where}; {hint}{elsewhere}")


def configured() -> bool:
    """Returns whether a cluster is configured. Does not load the configuration, which takes longer than the rest of the
    start."""
    return bool(os.environ.get("KUBECONFIG")) or os.path.exists(os.path.expanduser("~/.kube/config")) or TOKEN.exists()
