"""`lasthop pin`: shows the certificate of a backend, and prints a PinSet that trusts only it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from lasthop.base.api.addresses import is_ip
from lasthop.cli.args import jsonpath
from lasthop.cli.args.target import output as output_format
from lasthop.cli.args.values import host_port, is_name
from lasthop.cli.views.selection import read_stdin

if TYPE_CHECKING:
    from lasthop.edge.probe.certificate_view import CertificateInfo
    from lasthop.edge.probe.handshake import Handshake


@click.command("pin")
@click.argument("target", metavar="HOST:PORT|FILE")
@click.option("--server-name", metavar="NAME", help="The name to send as SNI.  [default: HOST, if it is a DNS name]")
@click.option(
    "--by",
    "form",
    type=click.Choice(["certificate", "key", "fingerprint"]),
    default="certificate",
    show_default=True,
    help="Pin the whole certificate, so that names and dates are verified too; or only the SHA-256 of its key (which "
    "survives a renewal with the same key) or of the certificate, with no other checks.",
)
@click.option("--name", metavar="NAME", help="Name of the PinSet.  [default: from the server name]")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the PinSet.")
@click.option("--timeout", type=click.FloatRange(0.1), default=10.0, show_default=True, help="Seconds to wait.")
@output_format("yaml", "json")
def command(
    target: str, server_name: str | None, form: str, name: str | None, namespace: str | None, timeout: float, output: str
) -> None:
    """Show the certificate of a backend, and print a PinSet that trusts only this certificate.

    Fetches it from HOST:PORT by a TLS handshake without verification. Anyone could have answered, so compare the SHA-256 with
    a value from the backend's owner. Reads it from a FILE (PEM; - is standard input) without network access. Prints the chain
    to standard error, the manifest to standard output.

    \b
    Examples:
      lasthop pin api.internal:8443 > pins.yaml
      lasthop pin 10.0.0.7:8443 --server-name api.internal
      lasthop pin next.pem --by key                            pin a key before it is in use
      kubectl get secret api-tls -o jsonpath='{.data.tls\\.crt}' | base64 -d | lasthop pin -
    """
    from lasthop.cli.render import pin_set

    presented = _from_file(target) if target == "-" or Path(target).is_file() else _from_network(target, server_name, timeout)
    leaf = presented.chain[0]
    chosen = name or pin_set.default_name(presented.known_as or _first_name(leaf))
    if not is_name(chosen):
        message = f"{chosen} is not a valid object name: use lower-case letters, digits, - and ."
        raise click.BadParameter(message, param_hint="--name")
    manifest = pin_set.as_yaml(leaf, chosen, namespace or "", form, presented.origin)
    if output == "json":
        jsonpath.echo_json(json.dumps(_plain(presented, manifest), indent=2))
        return
    for line in _described(presented, form, time.time()):
        click.echo(line, err=True)
    click.echo(manifest, nl=False)


class _PresentedChain(NamedTuple):
    chain: tuple[CertificateInfo, ...]
    origin: str
    known_as: str = ""
    """The host's DNS name; empty for an address."""
    handshake: Handshake | None = None


def _from_network(target: str, server_name: str | None, timeout: float) -> _PresentedChain:
    if "/" in target or (":" not in target and target.endswith((".pem", ".crt", ".cer", ".yaml", ".yml", ".json"))):
        raise click.BadParameter(f"file {target} does not exist", param_hint="HOST:PORT|FILE")
    host, port = host_port(target, "HOST:PORT|FILE")
    from lasthop.edge.probe.handshake import NoHandshake, fetch

    sni = server_name or ("" if is_ip(host) else host)
    try:
        handshake = fetch(host, port, sni, timeout)
    except NoHandshake as error:
        raise click.ClickException(str(error)) from None
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    origin = f"Certificate of {target} on {day}, not verified: compare it with that of the backend's owner."
    return _PresentedChain(_chain(list(handshake.chain), target), origin, sni or host, handshake)


def _from_file(target: str) -> _PresentedChain:
    where = "standard input" if target == "-" else target
    try:
        content = read_stdin() if target == "-" else Path(target).read_bytes()
    except OSError as error:
        raise click.ClickException(f"{target} cannot be read: {error.strerror}") from None
    return _PresentedChain(_chain(_ders(content, where), where), f"From {where}.")


def _ders(pem: bytes, origin: str) -> list[bytes]:
    from lasthop.base.pki import parse

    certificates = parse.certificates(pem)
    if isinstance(certificates, parse.Unreadable):
        raise click.ClickException(f"{origin} {certificates.message}; give the backend's certificate, as PEM")
    return [certificate.der for certificate in certificates]


def _chain(ders: list[bytes], origin: str) -> tuple[CertificateInfo, ...]:
    from lasthop.edge.probe.certificate_view import describe

    if not ders:
        raise click.ClickException(f"{origin} presented no certificate")
    try:
        return tuple(describe(der) for der in ders)
    except ValueError as error:
        raise click.ClickException(f"{origin}: a certificate cannot be read: {error}") from None


def _first_name(leaf: CertificateInfo) -> str:
    from lasthop.base.pki.parse import bare_names

    named = bare_names(leaf.names, "DNS")
    return named[0].removeprefix("*.") if named else leaf.subject.removeprefix("CN=")


def _described(presented: _PresentedChain, form: str, now: float) -> list[str]:
    from lasthop.edge.probe.certificate_view import lines

    shown = []
    for number, certificate in enumerate(presented.chain):
        title = "The pinned certificate" if number == 0 else f"Certificate {number + 1} of the chain"
        shown += [click.style(title, bold=True), *(f"  {line}" for line in lines(certificate, now)), ""]
    return shown + [click.style(f"! {warning}", fg="yellow") for warning in _warnings(presented, form, now)]


def _warnings(presented: _PresentedChain, form: str, now: float) -> Iterator[str]:
    from lasthop.base.pki.parse import bare_names
    from lasthop.edge.probe.certificate_view import is_valid, validity

    leaf = presented.chain[0]
    if form == "certificate" and not is_valid(leaf, now):
        yield f"it is {validity(leaf, now)}: a gateway will reject it. --by key does not check dates."
    if form == "certificate" and not bare_names(leaf.names, "DNS", "URI"):
        yield "it has no DNS name or URI, so no policy can match it: a gateway will reject it. --by key does not check names."
    if leaf.ca and not leaf.self_signed:
        yield "it is a CA certificate; a backend presents its own certificate, which comes first in its file."
    if presented.handshake:
        yield from _handshake_warnings(presented.handshake)


def _handshake_warnings(handshake: Handshake) -> Iterator[str]:
    from lasthop.edge.probe.handshake import GATEWAY_VERSIONS

    if handshake.client_certificate:
        verb = "demands" if handshake.client_certificate == "required" else "asks for"
        yield f"the backend {verb} a client certificate; give the Gateway one by spec.tls.backend.clientCertificateRef."
    if handshake.version and handshake.version not in GATEWAY_VERSIONS:
        yield f"the backend uses {handshake.version}; a gateway supports {' and '.join(GATEWAY_VERSIONS)} only."


def _plain(presented: _PresentedChain, manifest: str) -> dict[str, Any]:
    import msgspec
    import yaml

    tls = {}
    if handshake := presented.handshake:
        client_certificate = handshake.client_certificate
        tls = {
            "tls": {
                "version": handshake.version,
                "cipher": handshake.cipher,
                "alpn": handshake.alpn,
                "clientCertificate": client_certificate,
            }
        }
    return {
        "chain": [msgspec.to_builtins(certificate) for certificate in presented.chain],
        **tls,
        "pinSet": yaml.safe_load(manifest),
    }
