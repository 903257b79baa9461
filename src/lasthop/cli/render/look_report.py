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
    from lasthop.cli.views.backend_look import LookResult, Proposal
    from lasthop.edge.probe.result import Check

UNSOLVED = ("dates", "plaintext")
"""Checks whose remedy is shown even if an option helps."""
TRUST = {"chain", "pins", "names"}
"""Checks whose failure leaves the certificate untrusted."""


def verified(backends: Sequence[Backend], context: click.Context) -> list[Starter]:
    """Connects to the backends and writes the results to standard error. Exits unless all are usable."""
    from lasthop.cli.views.backend_look import look

    results = look(backends)
    for line in report(results, context):
        click.echo(line, err=True)
    starters = [result.starter for result in results if result.starter]
    if len(starters) < len(results):
        raise click.exceptions.Exit(1)
    return starters


def report(results: Sequence[LookResult], context: click.Context) -> Iterator[str]:
    for result in results:
        yield from _backend(result)
    yield from _next(results, context)


def _backend(result: LookResult) -> Iterator[str]:
    url = result.backend.url
    if result.starter is None:
        for check in result.checks:
            yield click.style(f"{MARKS['fail'][0]} {printable(f'{url}: {_meaning(result, check)}{check.found}')}", fg="red")
            ca_rejected = check.name == "chain" and result.backend.ca
            if check.remedy and (not result.proposals or check.name in UNSOLVED or ca_rejected):
                yield f"  {printable(check.remedy)}"
        yield from _certificate(result)
        return
    yield click.style(f"{MARKS['pass'][0]} {printable(_works(result))}", fg="green")
    if result.learned:
        name = result.starter.hostname
        stated = f"The name is that in its certificate; --hostname {name} states it."
        yield f"  {f'{name} is sent as SNI, and no name is verified.' if _hash_only(result.backend) else stated}"
    for check in result.checks:
        yield click.style(f"{MARKS['warn'][0]} {printable(f'{url}: {_meaning(result, check)}{check.found}')}", fg="yellow")
        if check.remedy:
            yield f"  {printable(check.remedy)}"


def _meaning(result: LookResult, check: Check) -> str:
    """Explains the failure; for an unknown chain, only without --ca."""
    leaf = result.certificate
    if check.name == CLIENT_CERTIFICATE:
        return f"{CLIENT_CERTIFICATE}: "
    if check.name != "chain" or leaf is None or result.backend.ca or result.backend.pin:
        return ""
    return f"{'a self-signed certificate' if leaf.self_signed else 'a CA that this system does not trust'}: "


def _works(result: LookResult) -> str:
    backend, starter, leaf = result.backend, result.starter, result.certificate
    assert starter is not None
    if not starter.hostname:
        return f"{backend.url}: plaintext, neither encrypted nor verified"
    against = _against(backend)
    if leaf is None:
        return f"{backend.url}: not seen yet; it will be verified against {against}, for {starter.hostname}"
    issuer = "itself" if leaf.self_signed else leaf.issuer
    return (
        f"{backend.url}: {result.version or 'TLS'}, {leaf.subject}, issued by {issuer}, until {leaf.not_after[:10]}; "
        f"verified against {against}{'' if _hash_only(backend) else f', for {starter.hostname}'}"
    )


def _hash_only(backend: Backend) -> bool:
    from lasthop.cli.args.backends import is_file_pin

    return bool(backend.pin) and not any(map(is_file_pin, backend.pin))


def _against(backend: Backend) -> str:
    if backend.pin:
        return "the pin"
    files = [file for file in backend.ca if file != SYSTEM]
    return ", ".join(files) if files else "the CAs that this system trusts"


def _certificate(result: LookResult) -> Iterator[str]:
    if result.certificate is None:
        return
    from lasthop.edge.probe.certificate_view import lines

    yield "  It presents this certificate:"
    yield from (f"    {line}" for line in lines(result.certificate, time.time()))
    if any(check.name in TRUST for check in result.checks) and result.proposals:
        yield "  Anyone could have answered: compare its SHA-256 with a value from the backend's owner."


def _next(results: Sequence[LookResult], context: click.Context) -> Iterator[str]:
    """Yields the commands to try next, each with a change for every backend that fails."""
    failing = {number: result for number, result in enumerate(results) if result.starter is None}
    if not failing or not all(result.proposals for result in failing.values()):
        return
    choices: list[tuple[Proposal | None, ...]] = list(zip_longest(*(result.proposals for result in failing.values())))
    yield ""
    yield "Then try:" if len(failing) > 1 or len(choices) == 1 else "Then try one of:"
    for choice in choices:
        chosen = [proposal or result.proposals[-1] for result, proposal in zip(failing.values(), choice, strict=True)]
        why = "; ".join(dict.fromkeys(proposal.why for proposal in chosen if proposal.why))
        changed = {number: proposal.backend for number, proposal in zip(failing, chosen, strict=True)}
        yield f"  # {printable(why)}"
        yield f"  {printable(command_line(context, changed))}"
