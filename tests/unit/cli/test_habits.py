"""Input of users who know kubectl, and terminals that lack some characters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lasthop.base.api.meta import Key
from lasthop.cli.args.objects import ObjectRef, kind_of, named_by, parse_refs
from lasthop.cli.args.values import Selector
from lasthop.cli.main import main
from tests.folders import good_folder, lasthop

LABELS = {"app": "web", "tier": "front", "example.com/team": "a"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (("get", "httproute", "-n", "shop"), "use: lasthop status httproute -n shop"),
        (("analyze", "objects"), "use: lasthop check objects"),
        (("routes",), "use: lasthop status httproute"),
        (("btls", "api"), "use: lasthop status backendtlspolicy api"),
        (("policy",), "use: lasthop status backendtlspolicy"),
        (("diff", "objects"), "lasthop check DIR --against HEAD"),
        (("describe", "btp", "api"), "use: lasthop explain btp api"),
        (("get", "hr", "a", "b", "-o", "wide"), "use: lasthop status hr a b -o wide"),
        (("describe", "hr/a", "btp/b"), "use: lasthop explain hr/a btp/b"),
        (("logs",), "use: lasthop tap"),
        (("restart", "objects"), "use: lasthop run --replace objects"),
        (("apply", "-f", "x"), "by kubectl apply"),
    ],
)
def test_words_of_kubectl_point_to_the_command(typed: tuple[str, ...], meant: str) -> None:
    result = lasthop(*typed)
    assert result.exit_code == 2
    assert meant in result.output.replace("main ", "lasthop ")


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("hr", "HTTPRoute"),
        ("btp", "BackendTLSPolicy"),
        ("lset", "ListenerSet"),
        ("httproutes.gateway.networking.k8s.io", "HTTPRoute"),
        ("gateways.v1.gateway.networking.k8s.io", "Gateway"),
        ("GW", "Gateway"),
    ],
)
def test_short_and_long_names_are_understood(typed: str, kind: str) -> None:
    assert kind_of(typed) == kind


def test_each_kind_of_a_list_may_have_its_own_name() -> None:
    assert parse_refs("hr,btp,hr", (), "shop") == [ObjectRef("HTTPRoute", "shop"), ObjectRef("BackendTLSPolicy", "shop")]
    assert parse_refs("hr/a,svc/shop/b", (), None) == [ObjectRef("HTTPRoute", "", "a"), ObjectRef("Service", "shop", "b")]
    with pytest.raises(click.BadParameter, match="unknown kind btpp; did you mean backendtlspolicy"):
        parse_refs("hr,btpp", (), None)


def test_several_names_are_taken_as_by_kubectl() -> None:
    def named(kinds: str, *names: str) -> list[str]:
        return ["/".join(filter(None, ref)) for ref in parse_refs(kinds, names, None)]

    assert named("hr", "a", "shop/b", "a") == ["HTTPRoute/a", "HTTPRoute/shop/b"]
    assert named("hr,btp", "a", "b") == ["HTTPRoute/a", "BackendTLSPolicy/a", "HTTPRoute/b", "BackendTLSPolicy/b"]
    assert named("hr/a", "btp/shop/b", "gw/c") == ["HTTPRoute/a", "BackendTLSPolicy/shop/b", "Gateway/c"]
    with pytest.raises(click.UsageError, match=r"b has no kind; write KIND/b, as hr/a"):
        named("hr/a", "b")
    with pytest.raises(click.BadParameter, match="unknown kind nope"):
        named("hr/a", "nope/b")


@pytest.mark.parametrize("given", ["web", "shop/web", "hr/web", "httproute/shop/web", "HTTPRoute shop/web"])
def test_an_object_is_known_by_each_of_its_names(given: str) -> None:
    web, other = Key("HTTPRoute", "shop", "web"), Key("GRPCRoute", "shop", "other")
    assert named_by(given, [web, other]) == [web]


def test_a_kind_of_another_group_is_not_ours() -> None:
    with pytest.raises(click.BadParameter):
        kind_of("gateways.networking.istio.io")


@pytest.mark.parametrize(
    ("selector", "fits"),
    [
        ("app=web", True),
        ("app==web,tier=front", True),
        ("app!=web", False),
        ("missing!=web", True),
        ("tier in (front, back),app", True),
        ("tier notin (front)", False),
        ("!missing", True),
        ("!app", False),
        ("example.com/team=a", True),
    ],
)
def test_labels_are_selected_as_by_kubectl(selector: str, fits: bool) -> None:
    assert Selector().convert(selector, None, None)(LABELS) is fits


@pytest.mark.parametrize("selector", ["a=b=c", "in (a", "a b", "="])
def test_a_selector_that_is_none_is_refused(selector: str) -> None:
    with pytest.raises(click.BadParameter, match="not a label selector"):
        Selector().convert(selector, None, None)


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp437"])
def test_no_terminal_gets_a_traceback(encoding: str, tmp_path: Path) -> None:
    folder = good_folder(tmp_path / "objects")
    run = [sys.executable, "-m", "lasthop.cli.main", "explain", "gateway", "web", "--dir", str(folder)]
    env = {"PYTHONIOENCODING": encoding, "HOME": str(tmp_path), "LASTHOP_RUN_DIR": str(tmp_path / "run"), "LC_ALL": "C"}
    ran = subprocess.run(run, env=env, capture_output=True, check=False)
    assert (ran.returncode, b"Traceback" in ran.stderr) == (0, False), ran.stderr
    assert b"Gateway shop/web" in ran.stdout


def test_all_namespaces_of_a_folder_are_what_a_folder_has_anyway(tmp_path: Path) -> None:
    folder = good_folder(tmp_path / "objects")
    assert lasthop("check", folder, "-A").output == lasthop("check", folder).output
    assert lasthop("audit", folder, "-A", "-n", "nowhere").exit_code == 0


def test_to_stop_a_folder_that_nothing_ran_on_is_no_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTHOP_RUN_DIR", str(tmp_path / "r"))
    result = lasthop("stop", tmp_path / "objects")
    assert (result.exit_code, result.output) == (0, f"Nothing runs on {tmp_path / 'objects'}\n")


@pytest.mark.parametrize("typed", ["get h", "help c", "apply -", "nope x"])
def test_completion_of_a_command_that_is_none_writes_no_message(typed: str) -> None:
    words = f"lasthop {typed}"
    env = {"_LASTHOP_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    result = CliRunner().invoke(main, env=env, prog_name="lasthop")
    assert (result.exit_code, result.exception) == (0, None)
    assert all(line.startswith("plain,") for line in result.output.split())


def test_help_is_a_command_as_well() -> None:
    assert lasthop("help").output == lasthop("--help").output
    assert lasthop("help", "check").output == lasthop("check", "--help").output
    assert "did you mean check?" in lasthop("help", "chekc").output


@pytest.mark.parametrize("template", ["jsonpath", "jsonpath-file=a", "go-template={{.x}}", "custom-columns=A:.b"])
def test_kubectls_templates_get_the_advice_to_use_jq(template: str) -> None:
    result = lasthop("status", "-o", template)
    assert (result.exit_code, "or -o json | jq" in result.output) == (2, True)


def _shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "lasthop"
    text = command.replace("lasthop", str(program)).replace("DIR", str(folder))
    env = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False, env=env)


@pytest.mark.program("bash")
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("lasthop check DIR > /dev/full", "Error: the output cannot be written: No space left on device\n"),
        ("lasthop --help > /dev/full", "Error: the output cannot be written: No space left on device\n"),
        ("lasthop check - <&-", "Error: standard input is closed\n"),
        ("lasthop pin - <&-", "Error: standard input is closed\n"),
        (
            "mkdir DIR/x && cd DIR/x && rmdir ../x && lasthop check .",
            "Error: the current folder was removed; change to another one\n",
        ),
    ],
)
def test_full_and_closed_streams_and_missing_folders_give_a_readable_error(command: str, message: str, tmp_path: Path) -> None:
    result = _shell(command, good_folder(tmp_path / "objects"))
    assert (result.returncode, result.stderr) == (1, message)


def test_an_interrupt_while_modules_are_loaded_ends_a_command_quietly_and_concerns_no_other_program() -> None:
    """A traceback of imports does not help a user who pressed Ctrl-C."""
    script = """\
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = {!r}
from lasthop.cli import main
early = signal.getsignal(signal.SIGINT)
main.main = lambda **_: print(early == signal.SIG_DFL, signal.getsignal(signal.SIGINT) == signal.SIG_DFL)
main.run()
print(signal.getsignal(signal.SIGINT) == signal.SIG_DFL)
"""
    for program, quiet in (("/usr/bin/lasthop", True), ("/usr/bin/pytest", False)):
        command = [sys.executable, "-c", script.format(program)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert output == f"{quiet} False\nTrue\n", "loading, running, ending"


@pytest.mark.parametrize(
    "args", [("init", "DIR", "--backend", "api.example.com:443"), ("stop", "DIR"), ("bundle", "-o", "DIR")]
)
def test_typed_text_is_shown_without_cursor_movements(args: tuple[str, ...], tmp_path: Path) -> None:
    name = str(tmp_path / "odd\x1b]0;title\x07")
    assert "\x1b" not in lasthop(*(arg.replace("DIR", name) for arg in args)).output
