"""`lasthop init DIR`: creates a folder with a minimal working configuration for backends."""

from __future__ import annotations

import os
from pathlib import Path

import click

from lasthop.base.text.printable import printable
from lasthop.cli.args import backends
from lasthop.cli.args.values import program
from lasthop.cli.render.init_templates import KEY_FILE, Listen, files


@click.command("init", cls=backends.GroupedCommand)
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@backends.options("--to", "--backend")
@click.pass_context
def command(context: click.Context, folder: Path, listen: str) -> None:
    """Create a folder with a minimal working configuration: a Gateway on 127.0.0.1 and a backend, over verified TLS.

    DIR must be empty or must not exist yet. Connects to the backend first. If the gateway could not verify it, writes nothing,
    and shows the backend's certificate and the options to add. `lasthop run --to` runs the same objects without a folder.

    \b
    Examples:
      lasthop init demo --to https://api.example.com
      lasthop init demo --to https://10.0.0.7:8443 --hostname api.internal --ca corp-ca.pem
      lasthop init demo --to http://localhost:3000 --plaintext
      lasthop init demo --to https://a:8443 --ca a.pem --to https://b:8443 --path /api --ca b.pem
    """
    to_backends = backends.from_arguments(context)
    if not to_backends:
        if url := backends.url_for_folder(str(folder)):
            raise click.UsageError(f"{url} is a backend, not a folder; write: {program()} init DIR --to {url}")
        raise click.UsageError(f"which backend? Add it: lasthop init {folder} --to https://api.example.com:443")
    place = Listen(*backends.listen_address(listen))
    _require_new(folder)
    from lasthop.cli.render.look_report import verified

    written = _write(folder, files(place, verified(to_backends, context)))
    click.echo("\n".join(map(printable, (*(f"wrote {path}" for path in written), "", *_next(folder, place)))))


def _require_new(folder: Path) -> None:
    try:
        if folder.exists() and any(folder.iterdir()):
            raise click.ClickException(f"{folder} is not empty and nothing is overwritten; choose a new folder")
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from None


def _write(folder: Path, contents: dict[str, str]) -> list[Path]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            mode = 0o600 if name.endswith(KEY_FILE) else 0o666
            with open(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
                file.write(content)
    except OSError as error:
        raise click.ClickException(f"cannot write {folder}: {error.strerror}") from None
    return [folder / name for name in contents]


def _next(folder: Path, listen: Listen) -> tuple[str, ...]:
    return (
        "Next:",
        f"  {program()} check {folder}",
        f"  {program()} run {folder}",
        f"  curl {listen.url}",
        f"  {program()} explain httproute backend --dir {folder}",
    )
