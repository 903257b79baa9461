"""`lasthop init DIR`: creates a folder with a minimal working configuration for a backend."""

from __future__ import annotations

from pathlib import Path

import click

from lasthop.base.api.addresses import is_ip
from lasthop.base.text.printable import printable
from lasthop.cli.args.values import host_port, is_name
from lasthop.cli.render.init_templates import Starter, files


@click.command("init")
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--backend", metavar="HOST:PORT", help="Address of the backend: a DNS name or an IP address.  [required]")
@click.option(
    "--hostname", metavar="NAME", help="The name in the backend's certificate.  [default: HOST, if it is a DNS name]"
)
@click.option(
    "--ca",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="PEM file with the CA of the backend's certificate.  [default: the CAs that this system trusts]",
)
@click.option("--plaintext", is_flag=True, help="The backend does not use TLS.")
@click.option(
    "--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port that the gateway listens on."
)
def command(folder: Path, backend: str | None, hostname: str | None, ca: Path | None, plaintext: bool, port: int) -> None:
    """Create a folder with a minimal working configuration: a Gateway on 127.0.0.1 and one backend, over verified TLS.

    DIR must be empty or must not exist yet.

    \b
    Examples:
      lasthop init demo --backend api.example.com:443
      lasthop init demo --backend 10.0.0.7:8443 --hostname api.internal --ca corp-ca.pem
      lasthop init demo --backend localhost:3000 --plaintext
    """
    if backend is None:
        raise click.UsageError(f"which backend? Add its address: lasthop init {folder} --backend api.example.com:443")
    host, backend_port = host_port(backend, "--backend")
    if plaintext and (ca or hostname):
        raise click.UsageError("--plaintext cannot be combined with --ca or --hostname: nothing is verified")
    name = "" if plaintext else _verified_name(hostname, host)
    starter = Starter(host, backend_port, port, name, _pem(ca) if ca else None)
    written = _write(folder, files(starter))
    click.echo("\n".join(map(printable, (*(f"wrote {path}" for path in written), "", *_next(folder, starter)))))


def _verified_name(hostname: str | None, host: str) -> str:
    """Returns the name that the backend's certificate must have."""
    if not hostname and is_ip(host):
        raise click.UsageError(
            f"certificates are verified by name, and {host} is an address. Add the name in the backend's "
            "certificate: --hostname NAME (or --plaintext, if the backend does not use TLS)"
        )
    if hostname and (is_ip(hostname) or not is_name(hostname)):
        message = f"{hostname} is {'an address' if is_ip(hostname) else 'not a DNS name'}; write the name in the certificate"
        raise click.BadParameter(message, param_hint="--hostname")
    return hostname or host


def _pem(path: Path) -> str:
    from lasthop.engine.resolve.trust.certificates import BadCertificate, parse_bundle

    try:
        return parse_bundle(path.read_bytes()).pem.decode()
    except OSError as error:
        raise click.BadParameter(f"{path} cannot be read: {error.strerror}", param_hint="--ca") from None
    except BadCertificate as error:
        raise click.BadParameter(f"{path} {error}; give the PEM certificate of the CA", param_hint="--ca") from None


def _write(folder: Path, contents: dict[str, str]) -> list[Path]:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty and nothing is overwritten; choose a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            with (folder / name).open("x") as file:
                file.write(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from None
    return [folder / name for name in contents]


def _next(folder: Path, starter: Starter) -> tuple[str, ...]:
    return (
        "Next:",
        f"  lasthop check {folder}",
        f"  lasthop run {folder}",
        f"  curl http://127.0.0.1:{starter.port}/",
        f"  lasthop explain httproute backend --dir {folder}",
    )
