"""Connects to the backends of a command line before anything is written or run, and finds a command that works.

It probes a backend like `lasthop probe`, with the objects that would be written, and probes its proposals too: each proposed
command has completed a verified handshake, unless it needs a file that only the user has.
"""

from __future__ import annotations

import contextlib
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.base.api.meta import Key
from lasthop.base.pki import parse
from lasthop.cli.args.backends import HEX_PIN, KEY_PIN, SYSTEM, Backend
from lasthop.cli.render.init_templates import Listen, Starter, manifest
from lasthop.cli.views.folder import FolderView
from lasthop.edge.probe.certificate_view import CertificateInfo, is_valid
from lasthop.edge.probe.checks import FEWER_CERTIFICATES, TOO_LARGE
from lasthop.edge.probe.first_look import LOCALHOST, BackendLook, Speaks, first_look, name_to_verify, sni_without_name
from lasthop.edge.probe.plan import probe, targets
from lasthop.edge.probe.result import CLIENT_CERTIFICATE, Check, CheckOutcome, EndpointResult, listed
from lasthop.engine.resolve.trust.certificates import BadCertificate, parse_bundle

FIXES: Final = 6
"""Maximum options that it adds for one backend."""
CA_FILES: Final = ("*.pem", "*.crt", "*.cer")
CA_PLACES: Final = (".local/share/mkcert/rootCA.pem", ".local/share/caddy/pki/authorities/local/root.crt")
"""CA files below the home directory, from tools that create a CA for this machine."""
MAX_FILES, MAX_SIZE = 100, 256 * 1024
ASK: Final = "FILE"
SEE_LOG: Final = "The backend's log may show the reason."


class Proposal(NamedTuple):
    backend: Backend
    why: str


class LookResult(NamedTuple):
    backend: Backend
    starter: Starter | None
    """The objects to write; None: they do not work."""
    checks: tuple[Check, ...]
    """The failed checks; without any, those with warnings."""
    certificate: CertificateInfo | None = None
    proposals: tuple[Proposal, ...] = ()
    learned: bool = False
    """The name comes from the certificate."""
    version: str = ""


def look(backends: Sequence[Backend]) -> list[LookResult]:
    return [_look(backend, name) for backend, name in zip(backends, _names(backends), strict=True)]


def _names(backends: Sequence[Backend]) -> Iterator[str]:
    """Yields a name for the objects of each backend, from its host and path."""
    from lasthop.cli.render.pin_set import default_name

    taken: set[str] = set()
    for backend in backends:
        match = f"{backend.host_match.removeprefix('*.')}{backend.path.rstrip('/')}".replace(".", "-")
        name = base = "backend" if len(backends) == 1 or not match else default_name(match)[:40]
        number = 2
        while name in taken:
            name, number = f"{base}-{number}", number + 1
        taken.add(name)
        yield name


def _look(backend: Backend, name: str) -> LookResult:
    server_name = backend.hostname or ("" if is_ip(backend.host) or backend.host == LOCALHOST else backend.host)
    shown = first_look(backend.host, backend.port, server_name)
    if not backend.tls:
        return _look_plaintext(backend, name, shown)
    match shown.speaks:
        case Speaks.UNREACHABLE:
            return _unreachable(backend, name, shown)
        case Speaks.PLAINTEXT:
            return _failed(backend, "it does not speak TLS on this port, but plaintext", _as_plaintext(backend))
        case Speaks.OTHER:
            return _failed(backend, "it speaks neither TLS nor HTTP/1.1 on this port")
        case Speaks.NOTHING:
            return _failed(backend, "it accepts connections and does not answer a TLS handshake")
        case Speaks.TOO_LARGE:
            return _failed(backend, TOO_LARGE, remedy=FEWER_CERTIFICATES, name="chain")
        case Speaks.ALERT | Speaks.CLOSED | Speaks.BROKEN:
            return _no_certificate(backend, server_name, shown)
    return _look_tls(backend, name, server_name, shown)


def _failed(backend: Backend, problem: str, *proposals: Proposal, remedy: str = "", name: str = "connect") -> LookResult:
    return LookResult(backend, None, (Check(name, CheckOutcome.FAIL, problem, remedy),), proposals=proposals)


def _as_plaintext(backend: Backend) -> Proposal:
    kept = ("host_match", "path", "keep_host")
    plain = Backend("http", backend.host, backend.port, plaintext=True, **{name: getattr(backend, name) for name in kept})
    return Proposal(plain, "neither encrypted nor verified")


def _look_plaintext(backend: Backend, name: str, shown: BackendLook) -> LookResult:
    if shown.speaks in (Speaks.TLS, Speaks.ALERT, Speaks.CLOSED):
        secure = Backend("https", backend.host, backend.port, host_match=backend.host_match, path=backend.path)
        proposal = Proposal(secure, "looks at its certificate")
        return _failed(backend, "it speaks TLS on this port", proposal)
    if not backend.plaintext:
        problem = "http:// is plaintext: neither encrypted nor verified"
        return _failed(backend, problem, _as_plaintext(backend), remedy="If you want that, add --plaintext.", name="plaintext")
    warnings = {
        Speaks.UNREACHABLE: (_unreachable_warning(shown),),
        Speaks.OTHER: (Check("http", CheckOutcome.WARN, "it does not speak HTTP/1.1 on this port", "Requests will fail."),),
    }
    return LookResult(backend, starter(backend, name, shown.address, ""), warnings.get(shown.speaks, ()))


def _unreachable_warning(shown: BackendLook) -> Check:
    return Check("connect", CheckOutcome.WARN, shown.problem, "Requests get 503 until it is there.")


def _unreachable(backend: Backend, name: str, shown: BackendLook) -> LookResult:
    """Continues if the options contain everything that the certificate would show: backends may start after their gateway."""
    hostname = backend.hostname or ("" if is_ip(backend.host) else backend.host)
    if hostname and (backend.ca or backend.pin):
        return LookResult(backend, starter(backend, name, shown.address, hostname), (_unreachable_warning(shown),))
    missing = [] if backend.ca or backend.pin else [f"--ca {ASK} (or --ca {SYSTEM}, for a public CA)"]
    missing += [] if hostname else ["--hostname NAME"]
    remedy = (
        "Start it, or correct the URL, and run the same command again. "
        f"To start Lasthop first, add the options that verify it: {' and '.join(missing)}."
    )
    return _failed(backend, shown.problem, remedy=remedy)


def _no_certificate(backend: Backend, server_name: str, shown: BackendLook) -> LookResult:
    client = f"for the name {server_name}" if server_name else "for a client that sends no name"
    problem = f"it shows no certificate {client} ({shown.problem})"
    if shown.speaks is Speaks.BROKEN or (server_name and shown.speaks is Speaks.CLOSED):
        return _failed(backend, problem, remedy=f"Is it the port for https? {SEE_LOG}", name="tls")
    if server_name and not shown.unknown_name:
        return _failed(backend, problem, remedy=f"Is {server_name} one of its names? {SEE_LOG}", name="tls")
    example = msgspec.structs.replace(backend, hostname=ASK.replace("FILE", "NAME"))
    return _failed(backend, problem, Proposal(example, "with the backend's name, which is sent as SNI"), name="sni")


# --- a backend that shows a certificate ------------------------------------------------------------------------------


def _look_tls(backend: Backend, name: str, server_name: str, shown: BackendLook) -> LookResult:
    leaf = shown.leaf
    if leaf is None:
        return _failed(backend, "it presents a certificate that cannot be read", name="chain")
    proposed = name_to_verify(backend.host, leaf)
    hostname = server_name or proposed.value or (sni_without_name(backend.host, leaf) if backend.pin else "")
    if not hostname:
        has = listed(leaf.names) or f"no subjectAltName ({leaf.subject} does not count)"
        problem = f"its certificate has no DNS name to verify: it holds {has}"
        return LookResult(
            backend, None, (Check("names", CheckOutcome.FAIL, problem),), leaf, tuple(_proposals(backend, name, shown))
        )
    attempt = _try(backend, name, shown.address, hostname)
    if not attempt.passes:
        fails = tuple(_by_options(check) for check in attempt.checks if check.state is CheckOutcome.FAIL)
        return LookResult(backend, None, fails, leaf, tuple(_proposals(backend, name, shown)))
    if not (server_name or backend.pin or proposed.certain):
        named = msgspec.structs.replace(backend, hostname=hostname)
        problem = f"{backend.host} is an address, and its certificate is for {listed(leaf.names)}: choose a name."
        return LookResult(
            backend, None, (Check("names", CheckOutcome.FAIL, problem),), leaf, (Proposal(named, "verifies this name"),)
        )
    warns = tuple(_by_options(check) for check in attempt.checks if check.state is CheckOutcome.WARN)
    learned = not server_name and hostname != backend.host
    return LookResult(
        backend, starter(backend, name, shown.address, hostname), warns, leaf, learned=learned, version=shown.version
    )


def _by_options(check: Check) -> Check:
    if check.name != CLIENT_CERTIFICATE:
        return check
    give = "If requests fail, add" if check.state is CheckOutcome.WARN else "Give a certificate that the backend trusts"
    return msgspec.structs.replace(check, remedy=f"{give}: --client-cert FILE --client-key FILE")


def _try(backend: Backend, name: str, address: str, hostname: str) -> EndpointResult:
    """Performs the handshake that a gateway with the objects of this backend would."""
    made = starter(backend, name, address, hostname)
    with tempfile.TemporaryDirectory(prefix="lasthop-") as folder:
        Path(folder, "objects.yaml").write_text(manifest(Listen("127.0.0.1", 8080), [made]))
        view = FolderView(Path(folder))
        key = Key("BackendTLSPolicy", "default", name)
        result = probe(key, targets(view.engine, key, None))
        problems = [str(finding) for finding in view.source_findings]
    for target in result.targets:
        if target.refused or not target.endpoints:
            return EndpointResult("", (Check("policy", CheckOutcome.FAIL, target.refused or target.unused),))
        return _combined(target.endpoints)
    return EndpointResult("", (Check("policy", CheckOutcome.FAIL, "; ".join(problems) or "it has no backend"),))


def _combined(endpoints: Sequence[EndpointResult]) -> EndpointResult:
    """Returns the result for a name with several addresses: every one that answers must pass, and one of them must answer."""
    silent = [endpoint for endpoint in endpoints if endpoint.checks[0].state is CheckOutcome.FAIL]
    answering = [endpoint for endpoint in endpoints if endpoint not in silent] or silent
    shown = next((endpoint for endpoint in answering if not endpoint.passes), answering[0])
    if not (shown.passes and silent):
        return shown
    passed_over = "Requests go to its other addresses, and to this one as soon as it is there."
    warned = (msgspec.structs.replace(endpoint.checks[0], state=CheckOutcome.WARN, remedy=passed_over) for endpoint in silent)
    return msgspec.structs.replace(shown, checks=(*shown.checks, *warned))


def _proposals(backend: Backend, name: str, shown: BackendLook) -> Iterator[Proposal]:
    """Yields working command lines, the strictest first: with the CA if its file is found, otherwise with the certificate's
    hash."""
    leaf = shown.leaf
    assert leaf is not None
    proposals = [_fixed(backend, name, shown, ())]
    if proposals[0] is None:
        with_ca = (_fixed(backend, name, shown, (file,)) for file in _ca_files(shown.chain))
        proposals = [next(filter(None, with_ca), None)]
        pinned = msgspec.structs.replace(backend, ca=(), pin=(leaf.sha256,), hostname=backend.hostname)
        proposals.append(_fixed(pinned, name, shown, ()))
        if proposals[0] is None and proposals[1] and _lacks_ca(backend, shown.chain):
            with_file = msgspec.structs.replace(proposals[1].backend, pin=(), ca=(ASK,))
            proposals[0] = Proposal(with_file, f"with the certificate of {shown.chain[-1].issuer} as PEM file, from its owner")
    yield from (proposal for proposal in proposals if proposal)


def _lacks_ca(backend: Backend, chain: Sequence[CertificateInfo]) -> bool:
    """Returns whether a client can verify the certificate, and its CA is not among the given CAs."""
    leaf, cas = chain[0], _cas(backend)
    if leaf.self_signed or not (
        is_valid(leaf, time.time()) and (backend.hostname or name_to_verify(backend.host, leaf).value)
    ):
        return False
    return not cas or chain[-1].issuer not in _ca_subjects(cas.encode())


def _fixed(backend: Backend, name: str, shown: BackendLook, ca: tuple[str, ...]) -> Proposal | None:
    """Returns the backend with options that work, and their meaning; None: nothing works."""
    leaf = shown.leaf
    assert leaf is not None
    current, why = msgspec.structs.replace(backend, ca=ca or backend.ca), []
    if ca:
        why.append(f"{ca[0]} has issued it")
    if backend.pin == (leaf.sha256,):
        why.append("trusts only this certificate, regardless of its names and dates")
    for _ in range(FIXES):
        learned = name_to_verify(backend.host, leaf)
        hostname = current.hostname or learned.value or (sni_without_name(backend.host, leaf) if current.pin else "")
        if not hostname:
            return None
        attempt = _try(current, name, shown.address, hostname)
        failing = next((check for check in attempt.checks if check.state is CheckOutcome.FAIL), None)
        if failing is None:
            if not (current.hostname or current.pin or learned.certain):
                current = msgspec.structs.replace(current, hostname=hostname)
            return Proposal(current, "; ".join(why))
        changed = _with_fix(current, failing, leaf)
        if changed is None or changed[0] == current:
            return None
        current = changed[0]
        why.append(changed[1])
        if ASK in (current.client_cert, current.client_key):
            return Proposal(current, "; ".join(why))
    return None


def _with_fix(backend: Backend, failing: Check, leaf: CertificateInfo) -> tuple[Backend, str] | None:
    if failing.option:
        option, value = failing.option
        permits = f"{option}={value}"
        return msgspec.structs.replace(backend, option=(*backend.option, permits)), f"permits {option} {value}"
    if failing.name == "names":
        name = name_to_verify("127.0.0.1", leaf).value
        return (msgspec.structs.replace(backend, hostname=name), f"verifies {name}") if name else None
    if failing.name == CLIENT_CERTIFICATE and not backend.client_cert:
        changed = msgspec.structs.replace(backend, client_cert=ASK, client_key=ASK)
        return changed, "with a client certificate that the backend trusts, and its key"
    return None


def _ca_files(chain: Sequence[CertificateInfo]) -> Iterator[str]:
    """Yields files in usual places with a certificate that could have issued the chain. Lasthop proposes them and never uses
    them."""
    top = chain[-1]
    if chain[0].self_signed and not chain[0].ca:
        return
    local = (path for pattern in CA_FILES for path in sorted(Path().glob(pattern)))
    home = (Path.home() / place for place in CA_PLACES)
    for number, path in enumerate((*local, *home)):
        with contextlib.suppress(OSError, BadCertificate):
            small = number < MAX_FILES and path.is_file() and path.stat().st_size <= MAX_SIZE
            if small and {top.issuer, top.subject} & _ca_subjects(path.read_bytes()):
                yield str(path)


def _ca_subjects(pem: bytes) -> set[str]:
    bundle = parse_bundle(pem)
    certificates = parse.certificates(bundle.pem)
    assert not isinstance(certificates, parse.Unreadable)
    return {certificate.subject for certificate, anchor in zip(certificates, bundle.anchors, strict=True) if not anchor.leaf}


# --- from options to objects -----------------------------------------------------------------------------------------


def starter(backend: Backend, name: str, address: str, hostname: str) -> Starter:
    """Returns the template values of a backend. Raises if one of its files is unusable."""
    certificate, key = _client(backend)
    by_name = not is_ip(backend.host) and backend.host != LOCALHOST
    return Starter(
        name,
        backend.host if by_name else address,
        backend.port,
        hostname,
        _cas(backend),
        _pins(backend),
        tuple(_option(option) for option in backend.option),
        certificate,
        key,
        backend.host_match,
        backend.path,
        backend.host if by_name and not backend.keep_host else "",
    )


def _option(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return name.removeprefix("lasthop.dev/"), value


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint=option) from None


def _cas(backend: Backend) -> str:
    files = [file for file in backend.ca if file != SYSTEM]
    if len(files) < len(backend.ca) and files:
        raise click.UsageError(f"--ca {SYSTEM} and --ca {files[0]} cannot be combined; remove one of them")
    bundles = []
    for path in files:
        try:
            bundles.append(parse_bundle(_read(path, "--ca")).pem.decode())
        except BadCertificate as error:
            remedy = "give the PEM certificate of the CA"
            if not isinstance(parse.certificate(_read(path, "--ca")), parse.Unreadable):
                convert = shlex.join(("openssl", "x509", "-inform", "DER", "-in", path, "-out", f"{path}.pem"))
                remedy = f"it is DER; make it PEM: {convert}"
            raise click.BadParameter(f"{path} {error}; {remedy}", param_hint="--ca") from None
    return "".join(bundles)


def _pins(backend: Backend) -> str:
    """Returns the spec of a PinSet."""
    import yaml

    pins: list[dict[str, str]] = []
    certificates: list[str] = []
    for pin in backend.pin:
        if HEX_PIN.fullmatch(pin):
            pins.append({"type": "Certificate", "algorithm": "SHA256", "value": pin})
        elif KEY_PIN.fullmatch(pin) and not Path(pin).is_file():
            pins.append({"type": "SPKI", "algorithm": "SHA256", "value": pin})
        else:
            pin_set = _pin_set(pin)
            pins += pin_set.get("pins") or []
            certificates += pin_set.get("certificates") or []
    lists: tuple[tuple[str, list[Any]], ...] = (("pins", pins), ("certificates", certificates))
    spec = {key: value for key, value in lists if value}
    return str(yaml.safe_dump(spec, sort_keys=False)) if spec else ""


def _pin_set(path: str) -> dict[str, Any]:
    import yaml

    try:
        content = _read(path, "--pin")
    except click.BadParameter as error:
        message = f"{path} is neither a SHA-256 (64 hexadecimal digits, or 44 characters of base64) nor a readable file"
        raise click.BadParameter(message, param_hint="--pin") from error
    try:
        documents = [document for document in yaml.safe_load_all(content) if isinstance(document, dict)]
    except (yaml.YAMLError, UnicodeDecodeError):
        documents = []
    specs = [document.get("spec") for document in documents if document.get("kind") == "PinSet"]
    if len(specs) != 1 or not isinstance(specs[0], dict) or not set(specs[0]) <= {"pins", "certificates"}:
        message = f"{path} is neither a SHA-256 nor a file with one PinSet; make one with: lasthop pin HOST:PORT > {path}"
        raise click.BadParameter(message, param_hint="--pin")
    return specs[0]


def _client(backend: Backend) -> tuple[str, str]:
    if not backend.client_cert:
        return "", ""
    certificate = _read(backend.client_cert, "--client-cert").decode(errors="replace")
    key = _read(backend.client_key, "--client-key").decode(errors="replace") if backend.client_key else certificate
    if "PRIVATE KEY" not in key:
        hint = f"{backend.client_key or backend.client_cert} holds no private key; give it with --client-key FILE"
        raise click.BadParameter(hint, param_hint="--client-key" if backend.client_key else "--client-cert")
    return _pem(certificate, "CERTIFICATE"), _pem(key, "PRIVATE KEY")


def _pem(text: str, label: str) -> str:
    """Returns the blocks of one type: certificate and key may share a file."""
    import re

    return "\n".join(re.findall(rf"-----BEGIN (?:[A-Z]+ )?{label}-----.*?-----END (?:[A-Z]+ )?{label}-----", text, re.DOTALL))
