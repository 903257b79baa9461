"""Parses `--to URL` and its options, for `lasthop run` and `lasthop init`.

Options after a `--to` apply to that backend, those before the first `--to` to all backends.
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from lasthop.base.api.addresses import is_ip, split_port, with_port
from lasthop.base.text.printable import printable
from lasthop.cli.args.target import add_options
from lasthop.cli.args.values import is_name, program

META: Final = "lasthop.backends"
SYSTEM: Final = "system"
"""A value of --ca: the CAs that this system trusts."""
LISTEN: Final = "127.0.0.1:8080"
PORTS: Final = {"https": 443, "http": 80}
HEX_PIN: Final = re.compile(r"(?:[0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}")
SLASHES: Final = re.compile(r"(?:(https?):)?/+", re.IGNORECASE)
LONGEST_LABEL: Final = 63
NUMBER: Final = re.compile(r"\d+|0[xX][0-9A-Fa-f]*")
PATH: Final = re.compile(r"(?!.*(?://|/\.\.?(?:/|\Z)|%2[Ff]))/(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|%[0-9A-Fa-f]{2})*", re.DOTALL)
LONGEST_PATH: Final = 1024
KEY_PIN: Final = re.compile(r"[A-Za-z0-9+/]{43}=")


UNVERIFIED: Final = (
    "no option skips the verification. Without options you are shown the backend's certificate, and the --ca or --pin that "
    "verifies it"
)
FOREIGN_OPTIONS: Final = {
    **dict.fromkeys(("-k", "--insecure", "--skip-verify", "--tls-skip-verify", "--no-verify"), UNVERIFIED),
    **dict.fromkeys(("--cacert", "--ca-cert", "--cafile", "--ca-file"), "use --ca FILE for the CA"),
    **dict.fromkeys(("--sni", "--server-name", "--servername"), "use --hostname for the name in the backend's certificate"),
    **dict.fromkeys(("--url", "--upstream", "--target"), "use --to URL for the backend"),
    **dict.fromkeys(("--from", "--port", "-p", "-l"), "use --listen IP:PORT for the address for clients"),
    "--cert": "use --client-cert FILE for the certificate that the gateway presents",
    "--key": "use --client-key FILE for the key of the certificate that the gateway presents",
}
"""Maps options of curl, openssl and Caddy to advice that names the option of Lasthop."""


class Backend(msgspec.Struct, frozen=True):
    """A backend of the command line. The fields after the port are options; `OPTIONS` has their names."""

    scheme: str
    host: str
    port: int
    ca: tuple[str, ...] = ()
    pin: tuple[str, ...] = ()
    hostname: str = ""
    host_match: str = ""
    path: str = "/"
    option: tuple[str, ...] = ()
    client_cert: str = ""
    client_key: str = ""
    keep_host: bool = False
    plaintext: bool = False

    @property
    def url(self) -> str:
        return f"{self.scheme}://{with_port(self.host, self.port)}"

    @property
    def tls(self) -> bool:
        return self.scheme == "https"


OPTIONS: Final = {
    "ca": "--ca",
    "pin": "--pin",
    "hostname": "--hostname",
    "host_match": "--host",
    "path": "--path",
    "option": "--option",
    "client_cert": "--client-cert",
    "client_key": "--client-key",
    "keep_host": "--keep-host",
    "plaintext": "--plaintext",
}
FLAGS: Final = ("keep_host", "plaintext")
LISTS: Final = ("ca", "pin", "option")


class Token(NamedTuple):
    """An option of the command line with its values, or an argument."""

    words: tuple[str, ...]
    option: str = ""
    """`to`, or a key of OPTIONS; empty: something else."""
    backend: int = -1
    """The index of its `--to`; -1 before the first."""


class GroupedCommand(click.Command):
    """Keeps the order of the options, because each belongs to the `--to` before it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[META] = tuple(_tokens(self, args))
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name not in FOREIGN_OPTIONS:
                raise
            raise click.UsageError(
                f"there is no option {error.option_name}; {FOREIGN_OPTIONS[error.option_name]}", ctx
            ) from None


def _options_by_name(command: click.Command) -> dict[str, click.Option]:
    options = (parameter for parameter in command.params if isinstance(parameter, click.Option))
    return {name: option for option in options for name in option.opts}


def _tokens(command: click.Command, args: Sequence[str]) -> Iterator[Token]:
    by_name = _options_by_name(command)
    words, number = iter(args), -1
    for word in words:
        name, equals, _ = word.partition("=")
        option = by_name.get(name)
        value = () if option is None or option.is_flag or equals else tuple(itertools.islice(words, 1))
        field = str(option.name) if option else ""
        number += field == "to"
        grouped = field == "to" or field in OPTIONS
        yield Token((word, *value), field, number) if grouped else Token((word, *value))


def options(*names: str) -> Callable[..., Any]:
    """Adds the options of backends, and --listen. `names` are the spellings of --to."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        return add_options(
            command,
            click.option(
                "--listen", default=LISTEN, show_default=True, metavar="IP:PORT", help="Address that clients connect to."
            ),
            _flag("--plaintext", "The backend of an http:// URL: neither encrypted nor verified."),
            _flag("--keep-host", "Send the client's Host header on, not the name in URL."),
            _listed("--client-key", "client_key", "FILE", "Its private key, as PEM.  [default: in the same file]"),
            _listed("--client-cert", "client_cert", "FILE", "PEM client certificate, for a backend that requests one."),
            _listed("--option", "option", "NAME=VALUE", "A lasthop.dev/NAME option of the policy, as min-tls-version=1.1."),
            _listed("--path", "path", "/PATH", "Only requests whose path begins with this."),
            _listed("--host", "host_match", "NAME", "Only requests for this host."),
            _listed("--hostname", "hostname", "NAME", "The name in the backend's certificate.  [default: the host in URL]"),
            _listed("--pin", "pin", "SHA256|FILE", "Trust this certificate or key: SHA-256, or what `lasthop pin` prints."),
            _listed(
                "--ca", "ca", "FILE", "PEM file with the CA of the certificate, or `system`.  [default: system, if that works]"
            ),
            click.option(
                *names, "to", multiple=True, expose_value=False, metavar="URL", help="The backend: https://HOST[:PORT]."
            ),
        )

    return add


def _listed(name: str, field: str, metavar: str, help: str) -> Callable[..., Any]:
    return click.option(name, field, multiple=True, expose_value=False, metavar=metavar, help=help)


def _flag(name: str, help: str) -> Callable[..., Any]:
    return click.option(name, is_flag=True, expose_value=False, help=help)


# --- from words to backends ------------------------------------------------------------------------------------------


def from_arguments(context: click.Context) -> tuple[Backend, ...]:
    """Returns the backends of the command line; empty without --to."""
    tokens: tuple[Token, ...] = context.meta[META]
    count = sum(token.option == "to" for token in tokens)
    stray = next((token for token in tokens if token.option in OPTIONS), None)
    if not count and stray:
        url = url_for_folder(str(context.params.get("folder") or "")) or "URL"
        raise click.UsageError(f"{stray.words[0].partition('=')[0]} belongs to a backend; give that with --to {url}")
    return tuple(_backend(tokens, number) for number in range(count))


def _backend(tokens: Sequence[Token], number: int) -> Backend:
    url = next(_value(token) for token in tokens if token.option == "to" and token.backend == number)
    for token in tokens:
        if token.option not in ("", *FLAGS) and token.backend in (-1, number) and not _value(token):
            hint = token.words[0].partition("=")[0]
            raise click.BadParameter("the value is empty; is a variable of your shell not set?", param_hint=hint)
    common = _fields([token for token in tokens if token.option in OPTIONS and token.backend == -1])
    specific = _fields([token for token in tokens if token.option in OPTIONS and token.backend == number])
    if "ca" in specific or "pin" in specific:
        common = {field: value for field, value in common.items() if field not in ("ca", "pin")}
    fields = common | specific
    fields |= {name: fields[name].lower() for name in ("hostname", "host_match") if name in fields}
    scheme, host, port = parse_url(url, "http" if fields.get("plaintext") else "https")
    backend = Backend(scheme, host, port, **fields)
    _require_sense(backend)
    return backend


def _fields(tokens: Sequence[Token]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for token in tokens:
        if token.option in FLAGS:
            fields[token.option] = True
        elif token.option in LISTS:
            fields[token.option] = (*fields.get(token.option, ()), _value(token))
        else:
            fields[token.option] = _value(token)
    return fields


def _value(token: Token) -> str:
    return token.words[1] if len(token.words) > 1 else token.words[0].partition("=")[2]


def parse_url(url: str, default: str = "https") -> tuple[str, str, int]:
    """Returns scheme, host and port. `default` is the scheme of a URL without one."""
    scheme, separator, rest = url.partition("://")
    scheme, rest = (scheme.lower(), rest) if separator else (default, url)
    example = "write https://HOST:PORT, as https://api.example.com:8443 or https://127.0.0.1:8443"
    slashes = SLASHES.match(url)
    misspelt = slashes is not None and slashes[0].lower() not in ("https://", "http://")
    if slashes and misspelt:
        scheme, rest = (slashes[1] or default).lower(), url[slashes.end() :]
    if scheme not in PORTS:
        raise click.BadParameter(f"{scheme}:// is not known; {example}", param_hint="--to")
    authority, slash, path = re.sub(r"[?#].*", "", rest).partition("/")
    user, _, place = authority.rpartition("@")
    if user:  # the message omits it, because it may hold a password
        message = f"the URL has a user name; write --to {scheme}://{place}: clients send their own credentials"
        raise click.BadParameter(message, param_hint="--to")
    if misspelt:
        raise click.BadParameter(f"{url} is not a URL of a backend; write --to {scheme}://{rest}", param_hint="--to")
    if path or rest != authority + slash:
        choose = f"; to choose requests by their path, add --path /{path}" if path else ""
        message = f"{url} has a path or a query, and requests keep their own; write --to {scheme}://{place}{choose}"
        raise click.BadParameter(message, param_hint="--to")
    if place.removeprefix(":").isdecimal():
        message = f"{url} has no host; write --to {scheme}://127.0.0.1:{place.removeprefix(':')}"
        raise click.BadParameter(message, param_hint="--to")
    if ":" in place and is_ip(place):
        message = f"{url} is not a URL of a backend; write an IPv6 address in brackets, as {scheme}://[::1]:8443"
        raise click.BadParameter(message, param_hint="--to")
    host, port = split_port(place)
    if is_ip(place.strip("[]")) or not host:
        host, port = place.strip("[]"), str(PORTS[scheme])
    _require_dns_name(host, url)
    # Programs parse 127.1 and 0x7f.0.0.1 differently, so the verified host could differ from the host in use.
    numeric = NUMBER.fullmatch(host.rpartition(".")[2]) is not None
    if not (is_ip(host) or (is_name(host) and not numeric)) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"{url} is not a URL of a backend; {example}", param_hint="--to")
    return scheme, host.lower(), int(port)


def _require_dns_name(host: str, url: str) -> None:
    wrong = ""
    if not host.isascii():
        wrong = "write its name as DNS has it, in ASCII: the labels with other letters begin with xn--"
    elif host.endswith("."):
        wrong = f"write the name without the last dot: {host.rstrip('.')}"
    elif any(len(label) > LONGEST_LABEL for label in host.split(".")):
        wrong = f"between two dots, a name has at most {LONGEST_LABEL} characters"
    if wrong:
        raise click.BadParameter(f"{url} is not a URL of a backend; {wrong}", param_hint="--to")


def url_for_folder(text: str) -> str:
    """Returns the URL if the user gave a backend instead of a folder; otherwise empty. `Path` has joined its slashes."""
    text = re.sub(r"^(\w+):/+", r"\1://", text)
    if ":" not in text:
        return ""
    try:
        scheme, host, port = parse_url(text)
    except click.BadParameter:
        if "://" in text:
            raise
        return ""
    return f"{scheme}://{with_port(host, port)}"


def _require_sense(backend: Backend) -> None:
    _require_consistent(backend)
    _require_names(backend)
    if not is_path(backend.path):
        begins = backend.path.startswith("/")
        wrong = "is not a path for a route: it is too long, or has //, /./, /../, %2F, or characters to escape as %XX"
        message = f"{printable(backend.path, 60)} {wrong if begins else 'does not begin with /'}"
        raise click.BadParameter(message, param_hint="--path")
    for option in backend.option:
        if not re.fullmatch(r"(lasthop\.dev/)?[a-z-]+=.*", option):
            raise click.BadParameter(f"{option} is not NAME=VALUE, as min-tls-version=1.1", param_hint="--option")


def _require_consistent(backend: Backend) -> None:
    verified = [name for name in ("ca", "pin", "hostname", "option", "client_cert", "client_key") if getattr(backend, name)]
    if not backend.tls and verified:
        raise click.UsageError(f"{OPTIONS[verified[0]]} is for https://, and {backend.url} is plaintext")
    if backend.tls and backend.plaintext:
        raise click.UsageError(f"--plaintext is for http://, and {backend.url} uses TLS; remove one of them")
    if backend.ca and backend.pin:
        raise click.UsageError(f"{backend.url} has --ca and --pin; remove one of them: either alone is enough")
    if backend.client_key and not backend.client_cert:
        raise click.UsageError("--client-key needs the certificate too: --client-cert FILE")


def _require_names(backend: Backend) -> None:
    name = backend.hostname
    if name and (is_ip(name) or not is_name(name)):
        message = f"{name} is {'an address' if is_ip(name) else 'not a DNS name'}; write the name in the certificate"
        raise click.BadParameter(message, param_hint="--hostname")
    host = backend.host_match
    if host and (is_ip(host) or not is_name(host.removeprefix("*."))):
        raise click.BadParameter(f"{host} is not a DNS name, as app.example or *.app.example", param_hint="--host")


def is_path(path: str) -> bool:
    """Returns whether an HTTPRoute may have this path as prefix."""
    return len(path) <= LONGEST_PATH and PATH.fullmatch(path) is not None


def listen_address(text: str) -> tuple[str, int]:
    """Returns the IP address and the port to listen on. A port alone means loopback, `:PORT` all addresses."""
    host, port = split_port(text)
    host = {"": "0.0.0.0" if ":" in text else "127.0.0.1", "localhost": "127.0.0.1", "*": "0.0.0.0"}.get(host, host)
    if not is_ip(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        message = f"{text} is not IP:PORT; write for example 127.0.0.1:8080, or :8080 for all addresses of this machine"
        raise click.BadParameter(message, param_hint="--listen")
    return host, int(port)


# --- from backends to a command line ---------------------------------------------------------------------------------


def command_line(context: click.Context, changed: dict[int, Backend]) -> str:
    """Returns the command line as typed, with changed options of some backends, for the user to copy."""
    tokens: tuple[Token, ...] = context.meta[META]
    before = from_arguments(context)
    _, *words = context.command_path.split()
    for token in tokens:
        new = changed.get(token.backend)
        if new is None:
            words += token.words
        elif token.option == "to":
            same = (new.scheme, new.host, new.port) == (before[token.backend].scheme, new.host, new.port)
            words += token.words if same else (token.words[0].partition("=")[0], new.url)
            words += _changed_words(before[token.backend], new)
        elif getattr(before[token.backend], token.option) == getattr(new, token.option):
            words += token.words
    return f"{program()} {shlex.join(words)}"


def _changed_words(before: Backend, new: Backend) -> Iterator[str]:
    for field, option in OPTIONS.items():
        value = getattr(new, field)
        if value == getattr(before, field) or not value:
            continue
        if field in FLAGS:
            yield option
        else:
            for item in value if field in LISTS else (value,):
                yield from (option, item)


def is_file_pin(pin: str) -> bool:
    """Returns whether a --pin is a file, rather than a SHA-256."""
    return not (HEX_PIN.fullmatch(pin) or KEY_PIN.fullmatch(pin)) or Path(pin).is_file()
