"""Renders the results of connecting to the backends of a command line, and the commands that would work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from lasthop.base.text.printable import printable
from lasthop.cli.args.backends import SYSTEM, Backend, command_line
from lasthop.cli.render.probe_report import MARKS
from lasthop.edge.probe.result import CLIENT_CERTIFICATE

if TYPE_CHECKING:
    from lasthop.cli.render.init_templates import Starter
    from lasthop.cli.views.backend_look import Looked, Proposal
    from lasthop.edge.probe.result import Check

UNSOLVED = ("dates", "plaintext")
"""Checks whose remedy is shown even if an option helps."""
TRUST = {"chain", "pins", "names"}
"""Checks whose failure leaves the certificate untrusted."""


def verified(backends: Sequence[Backend], context: click.Context) -> list[Starter]:
    """Connects to the backends and writes the results to standard error. Exits unless all are usable."""
    from lasthop.cli.views.backend_look import look

    looked = look(backends)
    for line in report(looked, context):
        click.echo(line, err=True)
    found = [each.starter for each in looked if each.starter]
    if len(found) < len(looked):
        raise click.exceptions.Exit(1)
    return found


def report(looked: Sequence[Looked], context: click.Context) -> Iterator[str]:
    for each in looked:
        yield from _backend(each)
    yield from _next(looked, context)


def _backend(looked: Looked) -> Iterator[str]:
    url = looked.backend.url
    if looked.starter is None:
        for check in looked.checks:
            yield click.style(f"{MARKS['fail'][0]} {printable(f'{url}: {_meaning(looked, check)}{check.found}')}", fg="red")
            given = check.name == "chain" and looked.backend.ca
            if check.remedy and (not looked.proposals or check.name in UNSOLVED or given):
                yield f"  {printable(check.remedy)}"
        yield from _certificate(looked)
        return
    yield click.style(f"{MARKS['pass'][0]} {printable(_works(looked))}", fg="green")
    if looked.learned:
        name = looked.starter.hostname
        stated = f"The name is that in its certificate; --hostname {name} states it."
        yield f"  {f'{name} is sent as SNI, and no name is verified.' if _hash_only(looked.backend) else stated}"
    for check in looked.checks:
        yield click.style(f"{MARKS['warn'][0]} {printable(f'{url}: {_meaning(looked, check)}{check.found}')}", fg="yellow")
        if check.remedy:
            yield f"  {printable(check.remedy)}"


def _meaning(looked: Looked, check: Check) -> str:
    """Explains the failure; for an unknown chain, only without --ca."""
    leaf = looked.certificate
    if check.name == CLIENT_CERTIFICATE:
        return f"{CLIENT_CERTIFICATE}: "
    if check.name != "chain" or leaf is None or looked.backend.ca or looked.backend.pin:
        return ""
    return f"{'a self-signed certificate' if leaf.self_signed else 'a CA that this system does not trust'}: "


def _works(looked: Looked) -> str:
    backend, starter, leaf = looked.backend, looked.starter, looked.certificate
    assert starter is not None
    if not starter.hostname:
        return f"{backend.url}: plaintext, neither encrypted nor verified"
    against = _against(backend)
    if leaf is None:
        return f"{backend.url}: not seen yet; it will be verified against {against}, for {starter.hostname}"
    issuer = "itself" if leaf.self_signed else leaf.issuer
    return (
        f"{backend.url}: {looked.version or 'TLS'}, {leaf.subject}, issued by {issuer}, until {leaf.not_after[:10]}; "
        f"verified against {against}{'' if _hash_only(backend) else f', for {starter.hostname}'}"
    )


def _hash_only(backend: Backend) -> bool:
    from lasthop.cli.args.backends import is_file_pin

    return bool(backend.pin) and not any(map(is_file_pin, backend.pin))


def _against(backend: Backend) -> str:
    if backend.pin:
        return "the pin"
    files = [each for each in backend.ca if each != SYSTEM]
    return ", ".join(files) if files else "the CAs that this system trusts"


def _certificate(looked: Looked) -> Iterator[str]:
    if looked.certificate is None:
        return
    from lasthop.edge.probe.certificate_view import lines

    yield "  It presents this certificate:"
    yield from (f"    {line}" for line in lines(looked.certificate, time.time()))
    if any(check.name in TRUST for check in looked.checks) and looked.proposals:
        yield "  Anyone could have answered: compare its SHA-256 with a value from the backend's owner."


def _next(looked: Sequence[Looked], context: click.Context) -> Iterator[str]:
    """Yields the commands to try next, each with a change for every backend that fails."""
    failing = {number: each for number, each in enumerate(looked) if each.starter is None}
    if not failing or not all(each.proposals for each in failing.values()):
        return
    choices: list[tuple[Proposal | None, ...]] = list(zip_longest(*(each.proposals for each in failing.values())))
    yield ""
    yield "Then try:" if len(failing) > 1 or len(choices) == 1 else "Then try one of:"
    for choice in choices:
        chosen = [proposal or each.proposals[-1] for each, proposal in zip(failing.values(), choice, strict=True)]
        why = "; ".join(dict.fromkeys(proposal.why for proposal in chosen if proposal.why))
        changed = {number: proposal.backend for number, proposal in zip(failing, chosen, strict=True)}
        yield f"  # {printable(why)}"
        yield f"  {printable(command_line(context, changed))}"
