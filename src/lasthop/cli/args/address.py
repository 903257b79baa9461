"""HOST:PORT as people type it."""

from __future__ import annotations

import click

from lasthop.base.api.addresses import is_ip, split_port


def host_port(text: str, hint: str) -> tuple[str, int]:
    """Parses HOST:PORT. `hint` names the argument or option in the error."""
    host, port = split_port(text)
    if not (is_name(host) or is_ip(host)) or not port.isdecimal() or not 0 < int(port) < 65536:
        message = f"{text} is not HOST:PORT; write for example api.example.com:443 or 127.0.0.1:8443"
        raise click.BadParameter(message, param_hint=hint)
    return host.lower(), int(port)


def is_name(text: str) -> bool:
    from lasthop.base.api.names import is_dns_subdomain

    return is_dns_subdomain(text.lower())


def ip_address(_: click.Context, parameter: click.Parameter, value: str) -> str:
    """Checks an option that is an IP address."""
    if not is_ip(value):
        raise click.BadParameter(f"{value} is not an IP address")
    return value
