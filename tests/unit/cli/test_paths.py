"""Whose socket the commands believe: only one that this user, or root, can have put there."""

from __future__ import annotations

import http.server
import json
import multiprocessing
import os
import re
import socket
import socketserver
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from lasthop.cli.args import local, paths
from tests.backends import until
from tests.folders import lasthop

ROOT = Path(__file__).parents[3]
STRANGER = 4002


class _Handler(http.server.BaseHTTPRequestHandler):
    """A gateway that has nothing to confess."""

    def do_GET(self) -> None:
        body = json.dumps({"hops": [], "certificates": []}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Quiet."""


def _serve(path: Path, uid: int) -> None:
    """Runs in a separate process, because it becomes the other user before it listens."""
    os.setuid(uid)
    socketserver.UnixStreamServer(str(path), _Handler).serve_forever()


@pytest.fixture
def root() -> Iterator[Path]:
    """Short, because unix sockets are in it, and where a stranger can write."""
    with tempfile.TemporaryDirectory(prefix="lh-", dir="/tmp") as name:
        os.chmod(name, 0o1777)
        yield Path(name)


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns the uid of another user: an unrelated one if this is root, else our own while the test pretends to be another
    user."""
    if os.geteuid() == 0:
        return STRANGER
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    return own


@pytest.fixture
def squatted(root: Path, other: int) -> Iterator[Path]:
    """A runtime directory with a gateway for the folder `objects`, both owned by another user."""
    run_dir = root / "run"
    place = paths.of_folder(run_dir, root / "objects")
    place.mkdir(parents=True)
    for path in (run_dir, place):
        os.chown(path, other, -1)
    path = place / paths.ADMIN_SOCKET
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(path, other))
    server.start()
    try:
        until(lambda: _answers(path), "the stranger listens")
        yield run_dir
    finally:
        server.terminate()
        server.join()


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as tried:
        return tried.connect_ex(str(path)) == 0


def test_a_socket_in_another_users_folder_is_not_trusted(squatted: Path) -> None:
    env = {"LASTHOP_RUN_DIR": str(squatted)}
    for args in (("audit", "--fail-on", "waived,plaintext"), ("status",), ("check",), ("explain", "gateway", "web")):
        result = lasthop(*args, env=env)
        assert (result.exit_code, "belongs to uid" in result.output) == (1, True), (args, result.output)
    result = lasthop("status", "--dir", squatted.parent / "objects", env=env)
    assert (result.exit_code, "belongs to uid" in result.output) == (1, True)


def test_another_users_socket_in_our_folder_is_not_trusted(squatted: Path, other: int) -> None:
    """As root would have left it, or a mistaken chown."""
    for path in (squatted, *squatted.iterdir()):
        if other == STRANGER:
            os.chown(path, 0, -1)
    if other != STRANGER:
        pytest.skip("only root can hand a folder over")
    result = lasthop("audit", "--fail-on", "waived", env={"LASTHOP_RUN_DIR": str(squatted)})
    assert (result.exit_code, f"uid {STRANGER}" in result.output) == (1, True), result.output


def test_a_link_to_a_folder_is_not_followed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "real").mkdir()
    (root / "run").symlink_to(root / "real")
    result = lasthop("status", env={"LASTHOP_RUN_DIR": str(root / "run")})
    assert (result.exit_code, "is not a folder" in result.output) == (1, True), result.output


def test_services_and_copies_of_them_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LASTHOP_RUN_DIR", raising=False)
    monkeypatch.setattr(paths, "SERVICES", tmp_path)
    for name in ("lasthop-service", "lasthop-service-erp", "lasthop-other"):
        (tmp_path / name).mkdir()
    names = [path.name for path, _ in paths.roots() if path.parent == tmp_path]
    assert names == ["lasthop-service", "lasthop-service-erp"]


def test_a_second_unit_of_the_documentation_writes_only_where_it_may() -> None:
    page = (ROOT / "docs" / "two-gateways.md").read_text()
    lines = dict(re.findall(r"^ *([A-Z]\w+)=(.+)$", page, re.MULTILINE))
    variables = dict(word.split("=") for word in lines["Environment"].split())
    assert variables["LASTHOP_RUN_DIR"] == f"%t/{lines['RuntimeDirectory']}"
    assert variables["LASTHOP_STATE_DIR"].startswith(f"%S/{lines['StateDirectory']}")
    assert Path(lines["RuntimeDirectory"]).match(paths.SERVICE_ROOTS)


def test_a_gateway_that_was_killed_is_not_said_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    env = {"LASTHOP_RUN_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)}
    folder = tmp_path / "objects"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        (place := paths.of_folder(tmp_path / "run", folder)).mkdir(parents=True)
        bound.bind(str(place / paths.ADMIN_SOCKET))
    killed = lasthop("status", "--dir", folder, env=env)
    assert (killed.exit_code, f"end them with: lasthop stop {folder}" in killed.stderr) == (1, True)
    assert "a killed gateway may have left proxies; list them: lasthop ps" in lasthop("status", env=env).stderr


def test_a_user_without_a_session_finds_its_gateway_and_gets_a_note_about_those_of_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by `sudo -u`, which has no XDG_RUNTIME_DIR, or the other way round."""
    uid = os.geteuid() or STRANGER
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    monkeypatch.delenv("LASTHOP_RUN_DIR")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(root / "session"))
    monkeypatch.setattr(paths, "SERVICES", root / "services")
    own, theirs = root / f"lasthop-{uid}", root / "lasthop-4099"
    own.mkdir()
    if os.getuid() == 0:
        os.chown(own, uid, -1)
        theirs.mkdir()
        os.chown(theirs, 4099, -1)
    assert (own, uid) in paths.roots()
    assert theirs not in dict(paths.roots())
    if os.getuid() == 0:
        result = lasthop("ps", env={"LASTHOP_RUN_DIR": ""})
        assert result.stdout == "No gateway runs on this machine\n"
        assert "all: sudo lasthop ps" in result.stderr
        assert "sudo lasthop ps" in lasthop("status", "--dir", root, env={"LASTHOP_RUN_DIR": ""}).stderr


def test_root_gets_the_command_for_a_gateway_that_it_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = local.LocalGateway(Path("/run/user/4099/lasthop/a"), 4099, {"folder": "/home/them/objects"})
    monkeypatch.setattr(local, "gateways", lambda: [theirs])
    monkeypatch.setattr(local, "state", lambda _: "running")
    output = lasthop("stop").stdout
    assert "No gateway of this user runs on this machine" in output
    assert "That on /home/them/objects is uid 4099's: sudo -u uid 4099 lasthop stop" in output


@pytest.mark.parametrize(
    ("own", "theirs", "ended"), [("running", "running", True), ("ended", "ended", True), ("ended", "running", False)]
)
def test_another_users_files_for_a_folder_do_not_prevent_root_from_ending_its_own_gateway(
    root: Path, monkeypatch: pytest.MonkeyPatch, own: str, theirs: str, ended: bool
) -> None:
    name = paths.of_folder(root, root).name
    ours, other = (local.LocalGateway(root / who / name, uid, {}) for who, uid in (("us", os.geteuid()), ("them", 4099)))
    monkeypatch.setattr(local, "gateways", lambda: [ours, other])
    monkeypatch.setattr(local, "state", lambda run_dir: own if run_dir.uid == ours.uid else theirs)
    if ended:
        assert [gateway.run_dir for gateway in local.chosen(root)] == [ours.run_dir]
    else:
        with pytest.raises(click.ClickException, match="is uid 4099's; end it as that user"):
            local.chosen(root)


def test_the_gateway_of_root_is_out_of_reach_with_a_readable_error(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses root nothing, so the test simulates the refusal."""
    run_dir, folder = root / "run", root / "objects"
    place = paths.of_folder(run_dir, folder)
    place.mkdir(parents=True)
    folder.mkdir()
    monkeypatch.setenv("LASTHOP_RUN_DIR", str(run_dir))

    def refuse(path: Path, *args: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    owner = paths.user_name(os.geteuid())
    with monkeypatch.context() as refused:
        refused.setattr(Path, "chmod", refuse)
        with pytest.raises(click.ClickException, match=f"{place} is {owner}'s; set LASTHOP_RUN_DIR"):
            paths.private(place)
    with monkeypatch.context() as refused:
        refused.setattr(Path, "exists", refuse)
        with pytest.raises(click.ClickException, match=f"the gateway on {folder} is {owner}'s; only that user, or root"):
            paths.running(folder)
    monkeypatch.setattr(local, "gateways", lambda: refuse(place))
    result = lasthop("ps")
    assert (result.exit_code, result.stderr) == (1, f"Error: {place} may not be used: Permission denied\n")


# --- links -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def release(root: Path) -> Path:
    """A folder that is a link to a release."""
    for name in ("a", "b"):
        (root / name).mkdir()
    (root / "current").symlink_to("a")
    return root / "current"


def switch(link: Path, to: str) -> None:
    (link.parent / "next").symlink_to(to)
    (link.parent / "next").rename(link)


def test_a_folder_has_its_directory_wherever_its_link_leads(root: Path, release: Path) -> None:
    place = paths.claim(root / "run", release)
    switch(release, "b")
    assert paths.of_folder(root / "run", release) == place
    assert paths.claim(root / "run", release) == place


def test_the_same_folder_is_found_by_every_path_that_leads_there(
    root: Path, release: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = paths.claim(root / "run", release)
    assert paths.of_folder(root / "run", root / "a") == place
    assert paths.of_folder(root / "run", root / "b") != place
    switch(release, "b")
    assert paths.of_folder(root / "run", root / "b") == place
    assert paths.of_folder(root / "run", root / "a") != place
    monkeypatch.chdir(release)
    monkeypatch.setenv("PWD", str(release))
    assert paths.of_folder(root / "run", Path(".")) == place
    assert paths.absolute(Path(".")) == str(release)


def test_a_shell_that_is_elsewhere_by_now_is_not_believed(root: Path, release: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(release)
    monkeypatch.setenv("PWD", str(release))
    switch(release, "b")
    assert paths.absolute(Path(".")) == str(root / "a")


def test_two_folders_never_share_a_directory(root: Path, release: Path) -> None:
    assert paths.claim(root / "run", root / "a") != paths.claim(root / "run", root / "b")
    # It leads to a folder that has one.
    assert paths.claim(root / "run", release) == paths.of_folder(root / "run", root / "a")


@pytest.mark.parametrize("content", [b"", b"\0", b"/nowhere", b"\xff", b"x" * 10_000])
def test_a_note_that_makes_no_sense_is_not_followed(root: Path, release: Path, content: bytes) -> None:
    other = paths.private(root / "run" / "zz")
    (other / paths.USED_FOR).write_bytes(content)
    assert paths.of_folder(root / "run", root / "a") != other


def test_a_note_that_is_a_pipe_or_a_link_is_not_read(root: Path, release: Path) -> None:
    pipe, link = paths.private(root / "run" / "pipe"), paths.private(root / "run" / "link")
    os.mkfifo(pipe / paths.USED_FOR)
    (root / "text").write_text(str(root / "a"))
    (link / paths.USED_FOR).symlink_to(root / "text")
    assert paths.of_folder(root / "run", root / "a") not in (pipe, link)
