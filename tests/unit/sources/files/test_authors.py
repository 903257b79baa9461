"""The last author of a file: from git if it can be trusted, otherwise the owner; a hostile repository runs nothing."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lasthop.base.api.meta import Key
from lasthop.edge.sources.files import authors
from lasthop.edge.sources.files.authors import Authors
from lasthop.edge.sources.files.loader import Loader
from lasthop.edge.sources.files.source import FilesSource

OWNER = f"file owner {getpass.getuser()}"
ANN = "Ann <ann@example.com>, commit "
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *arguments: str) -> str:
    identity = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@example.com"}
    committer = {"GIT_COMMITTER_NAME": "Bob", "GIT_COMMITTER_EMAIL": "bob@example.com", "GIT_CONFIG_GLOBAL": "/dev/null"}
    done = subprocess.run(
        ("git", *arguments),
        cwd=folder,
        env={**os.environ, **identity, **committer},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "objects"
    (made / "team").mkdir(parents=True)
    git(made, "init", "-q")
    for name in ("a.yaml", "team/b.yaml", "[x]*.yaml"):
        (made / name).write_text(f"# {name}\n")
    git(made, "add", ".")
    git(made, "commit", "-qm", "first")
    return made


@needs_git
def test_an_unmodified_file_has_the_author_of_its_last_commit(repository: Path) -> None:
    (repository / "a.yaml").write_text("# other\n")
    git(repository, "commit", "-qam", "second")
    first, second = git(repository, "log", "--format=%h").split()[::-1]
    names = Authors()
    assert names.of(repository / "team/b.yaml").startswith(f"{ANN}{first} of 20")
    assert names.of(repository / "a.yaml").startswith(f"{ANN}{second} of 20")
    assert names.of(repository / "[x]*.yaml").startswith(f"{ANN}{first} of 20"), "a name is no pattern"


@needs_git
def test_uncommitted_changes_have_the_owner_of_the_file(repository: Path) -> None:
    names = Authors()
    assert names.of(repository / "a.yaml").startswith(ANN)
    (repository / "a.yaml").write_text("# modified, and not committed\n")
    assert names.of(repository / "a.yaml") == f"{OWNER}, not committed"
    git(repository, "add", "a.yaml")
    assert Authors().of(repository / "a.yaml") == f"{OWNER}, not committed", "nor is what is only staged"
    (repository / "new.yaml").write_text("")
    assert names.of(repository / "new.yaml") == OWNER


@needs_git
def test_a_deleted_file_has_the_author_of_the_commit_that_deleted_it(repository: Path) -> None:
    (repository / "a.yaml").unlink()
    assert Authors().of(repository / "a.yaml").endswith(", not committed")
    git(repository, "commit", "-qam", "delete")
    assert Authors().of(repository / "a.yaml").startswith(f"{ANN}{git(repository, 'log', '-1', '--format=%h').strip()}")


def test_without_git_or_a_repository_it_is_the_owner(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("")
    assert Authors().of(tmp_path / "a.yaml") == Authors(git="").of(tmp_path / "a.yaml") == OWNER
    assert Authors(git="/nowhere/git").of(tmp_path / "a.yaml") == OWNER
    assert Authors().of(Path("/nowhere/at/all")) == ""


@needs_git
def test_a_repository_of_another_user_is_not_read(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[object] = []
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: ran.append(args))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert Authors().of(repository / "a.yaml") == OWNER and not ran


@needs_git
def test_a_hostile_repository_runs_nothing(repository: Path, tmp_path: Path) -> None:
    """Its configuration, attributes and hooks name a program wherever git could run one."""
    (ran := tmp_path / "ran").mkdir()
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\ntouch {ran}/"$$"\ncat\n')
    program.chmod(0o755)
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "fsmonitor-watchman"):
        shutil.copy(program, repository / ".git" / "hooks" / hook)
    for name in (
        *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy"),
        *("core.alternateRefsCommand", "diff.external", "diff.x.command", "diff.x.textconv", "filter.x.clean"),
        *("filter.x.smudge", "filter.x.process", "gpg.program", "gpg.x509.program", "gpg.ssh.program", "pager.log"),
        *("credential.helper", "uploadpack.packObjectsHook", "remote.origin.uploadpack", "alias.log", "alias.rev-parse"),
    ):
        git(repository, "config", name, str(program))
    git(repository, "config", "core.hooksPath", str(repository / ".git/hooks"))
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "core.repositoryformatversion", "1")
    git(repository, "config", "extensions.partialClone", "origin")
    git(repository, "config", "remote.origin.promisor", "true")
    git(repository, "config", "remote.origin.url", f"ext::{program}")
    git(repository, "config", "protocol.ext.allow", "always")
    (repository / ".git/info/attributes").write_text("* filter=x diff=x\n")
    # An object that is missing would be fetched, by the program that the remote names.
    folder = git(repository, "rev-parse", "HEAD:team").strip()
    shutil.rmtree(ran)
    ran.mkdir()
    for missing in (False, True):
        if missing:
            (repository / ".git/objects" / folder[:2] / folder[2:]).unlink()
        for name in ("a.yaml", "team/b.yaml", "[x]*.yaml", "nowhere.yaml"):
            Authors().of(repository / name)
        assert list(ran.iterdir()) == [], missing


@needs_git
@pytest.mark.parametrize("odd", ["pipe", "device", "folder", "large"])
def test_a_file_that_was_replaced_by_something_endless_is_not_waited_for(repository: Path, odd: str) -> None:
    path = repository / "a.yaml"
    path.unlink()
    match odd:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "large":
            path.touch()
            os.truncate(path, 1 << 40)
        case _:
            path.symlink_to("/dev/zero")
    assert Authors().of(path).endswith(", not committed")


@needs_git
def test_a_name_with_control_characters_is_printed_without_them(repository: Path) -> None:
    git(repository, "config", "user.name", "x")
    (repository / "a.yaml").write_text("# other\n")
    git(repository, "commit", "-qam", "x", "--author", "Eve\x1b[2J\u202e <eve@example.com>")
    author = Authors().of(repository / "a.yaml")
    assert author.startswith("Eve") and author.isprintable()


def test_a_git_that_hangs_is_left_alone_for_a_while(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, slow, now = tmp_path / "runs", tmp_path / "slow", [0.0]
    slow.write_text(f"#!/bin/sh\necho x >> {runs}\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(authors, "TIMEOUT", 0.2)
    names = Authors(git=str(slow), clock=lambda: now[0])
    for name in ("a.yaml", "team/b.yaml"):
        assert names.of(repository / name) == OWNER
    assert runs.read_text().count("x") == 1
    now[0] = authors.SILENCE + 1
    (repository / "a.yaml").write_text("# other\n")
    names.of(repository / "a.yaml")
    assert runs.read_text().count("x") == 2


@needs_git
def test_thousands_of_files_do_not_hold_up_everything_else(repository: Path) -> None:
    now = [1000.0]

    def clock() -> float:
        """Each command takes 10 ms."""
        now[0] += 0.01
        return now[0]

    names = Authors(clock=clock)
    for number in range(300):
        (repository / "a.yaml").write_text(f"# {number}\n")
        os.utime(repository / "a.yaml", ns=(number, number))
        last = names.of(repository / "a.yaml")
    assert last == OWNER and now[0] - 1000.0 < 10.0
    now[0] += authors.SILENCE
    os.utime(repository / "a.yaml", ns=(5000, 5000))
    assert names.of(repository / "a.yaml") == f"{OWNER}, not committed"


SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}}}
spec: {{ports: [{{port: {port}}}]}}
"""


def test_an_edited_object_has_the_author_of_the_file_that_edited_it(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(SERVICE.format(name="one", port=80) + "---" + SERVICE.format(name="two", port=80))
    loader, one, two = Loader(tmp_path), Key("Service", "default", "one"), Key("Service", "default", "two")
    loader.apply(loader.look())
    assert loader.edited_in(one) is None, "what was read at the start was not edited"
    first.write_text(SERVICE.format(name="one", port=81))
    second.write_text(SERVICE.format(name="two", port=80))
    loader.apply(loader.look())
    assert loader.edited_in(one) == first and loader.edited_in(two) in (first, second)
    second.unlink()
    loader.apply(loader.look())
    assert loader.edited_in(two) == second, "also one that was deleted with it"
    assert FilesSource(tmp_path).author(one) == ""
