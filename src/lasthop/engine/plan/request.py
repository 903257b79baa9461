"""Builds a request as a client sends it, and normalizes it as the proxy does before it chooses a route."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

import msgspec

from lasthop.base.api.addresses import is_ip
from lasthop.engine.plan.profile import HttpRules

MAX_SIZE: Final = 16_000
"""Characters of the URL and all headers together."""
_PORTS: Final = {"http": 80, "https": 443}
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
"""RFC 9110 5.6.2: a method, or the name of a header."""
_VISIBLE: Final = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_ESCAPED_SLASH: Final = re.compile("%2[fF]|%5[cC]")
_ESCAPED: Final = re.compile("%([0-9a-fA-F]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_NAME_WITH_DOT: Final = re.compile(r"^(.*)\.(:[0-9]+)?$")
_TO_ESCAPE: Final = re.compile('[ "<>^`{|}]')


class BadRequest(ValueError):
    """The arguments do not form a request; the text explains what to write."""


class Request(msgspec.Struct, frozen=True):
    method: str
    scheme: str
    authority: str
    """The Host header, or `:authority`."""
    port: int
    """The port that the client connects to."""
    target: str
    """Path and query."""
    headers: tuple[tuple[str, str], ...] = ()
    """Lower-case names, without Host."""
    sni: str = ""
    """The server name in the client's TLS handshake; empty for IP addresses."""

    @property
    def host(self) -> str:
        """The name in the Host header as it selects a virtual host: without port and trailing dot, in lower case."""
        name = self.authority
        if not name.endswith("]"):
            before, colon, port = name.rpartition(":")
            name = before if colon and port.isdigit() else name
        return name.removesuffix(".").lower()

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def grpc(self) -> bool:
        kind = self.header("content-type") or ""
        return kind == "application/grpc" or kind.startswith("application/grpc+")

    @property
    def upgrade(self) -> bool:
        return self.header("upgrade") is not None

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"

    def header(self, name: str) -> str | None:
        """Returns the first value of a header; None if there is none."""
        return next(iter(self.values(name)), None)

    def values(self, name: str) -> list[str]:
        """Returns the values of a header, each as it was sent: the proxy compares them one by one."""
        if name == "host":
            return [self.authority]
        if name == "x-forwarded-proto":
            return [self.scheme]  # set by the proxy; the client's value is overwritten
        return [value for header, value in self.headers if header == name]

    def query(self, name: str) -> str | None:
        """Returns the first value of a query parameter, still escaped; None if there is none."""
        for part in self.target.partition("?")[2].split("&"):
            parameter, _, value = part.partition("=")
            if parameter == name:
                return value
        return None


def read_request(method: str, url: str, headers: tuple[str, ...] = (), sni: str = "") -> Request:
    """Returns the request that a client sends for a URL. Raises `BadRequest`."""
    if len(url) + sum(map(len, headers)) > MAX_SIZE:
        raise BadRequest(f"URL and headers have more than {MAX_SIZE:,} characters")
    if not _TOKEN.fullmatch(method):
        raise BadRequest(f"{method!r} is not an HTTP method; write for example GET")
    host, port, target, scheme = _split(url)
    pairs = tuple(_header(line) for line in headers)
    host_header = next((value for name, value in reversed(pairs) if name == "host"), "")
    default = f"{_bracketed(host)}:{port}" if port != _PORTS[scheme] else _bracketed(host)
    server_name = sni.lower().removesuffix(".") or ("" if is_ip(host) else host)
    return Request(
        method.upper(),
        scheme,
        host_header or default,
        port,
        target,
        tuple((name, value) for name, value in pairs if name != "host"),
        server_name if scheme == "https" else "",
    )


def _split(url: str) -> tuple[str, int, str, str]:
    """Returns (host, port, path and query, scheme)."""
    advice = "write it like https://www.example.com/path"
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme.lower(), parts.hostname or "", parts.port
    except ValueError as error:
        raise BadRequest(f"{url!r} is not a URL ({error}); {advice}") from None
    if scheme not in _PORTS or not host:
        raise BadRequest(f"{url!r} is not an http or https URL; {advice}")
    try:
        host = host.removesuffix(".").encode("idna").decode() if not host.isascii() else host.removesuffix(".")
    except UnicodeError:
        raise BadRequest(f"{host!r} is not a hostname; {advice}") from None
    # Clients escape these characters before they send a URL; escaped ones stay unchanged.
    path = quote(parts.path or "/", safe=_VISIBLE)
    query = f"?{quote(parts.query, safe=_VISIBLE)}" if parts.query or "?" in url.partition("#")[0] else ""
    return host, port or _PORTS[scheme], path + query, scheme


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _header(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not _TOKEN.fullmatch(name.strip()):
        raise BadRequest(f"{line!r} is not a header; write 'Name: value'")
    return name.strip().lower(), value.strip()


# --- as the proxy sees it --------------------------------------------------------------------------------------------


class Rejected(msgspec.Struct, frozen=True):
    """The proxy answers before it looks for a route."""

    status: int
    why: str
    location: str = ""


def normalize(request: Request, rules: HttpRules) -> Request | Rejected:
    """Normalizes path and headers as the proxy does before it matches routes."""
    headers = request.headers
    if underscored := [name for name, _ in headers if "_" in name]:
        if rules.underscores_in_headers == "RejectRequest":
            return Rejected(400, f"header {underscored[0]} has an underscore in its name")
        if rules.underscores_in_headers == "DropHeader":
            headers = tuple(pair for pair in headers if "_" not in pair[0])
    path, mark, query = request.target.partition("?")
    escaped = _ESCAPED_SLASH.search(path) if rules.escaped_slashes != "KeepUnchanged" else None
    if escaped and rules.escaped_slashes == "RejectRequest":
        return Rejected(400, f"the path has an escaped slash ({escaped[0]})")
    if escaped:
        path = _ESCAPED_SLASH.sub(lambda slash: "/" if slash[0][1] == "2" else "\\", path)
    if not path.isascii() or "\0" in path or "%00" in path:
        return Rejected(400, "the path has a byte that is not allowed in a URL")
    path = normalize_path(path, merge=rules.merge_slashes)
    target = path + mark + query
    if escaped and rules.escaped_slashes == "UnescapeAndRedirect":
        if request.grpc:
            return Rejected(400, f"the path of the call has an escaped slash ({escaped[0]})")
        return Rejected(
            307, f"the path has an escaped slash ({escaped[0]}); the client is redirected to the path without it", target
        )
    authority = _NAME_WITH_DOT.sub(r"\1\2", request.authority)
    return msgspec.structs.replace(request, authority=authority, target=target, headers=headers)


def normalize_path(path: str, *, merge: bool) -> str:
    """Normalizes a path (RFC 3986 6.2.2): unescapes unreserved characters, removes dot segments and, with `merge`, repeated
    slashes."""
    path = _ESCAPED.sub(lambda code: chr(n) if chr(n := int(code[1], 16)) in _UNRESERVED else code[0], path)
    path = _TO_ESCAPE.sub(lambda char: f"%{ord(char[0]):02X}", path.replace("\\", "/"))
    kept: list[str] = []
    segments = path.split("/")[1:]
    for number, segment in enumerate(segments):
        last = number == len(segments) - 1
        if segment == "..":
            kept = kept[:-1]
        if segment not in (".", ".."):
            kept.append(segment)
        elif last:
            kept.append("")
    clean = "/" + "/".join(kept)
    return re.sub("/{2,}", "/", clean) if merge else clean
