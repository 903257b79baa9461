"""Imports aiohttp without the system's CAs, which aiohttp reads twice, into TLS contexts that it makes while it is imported.

Modules import this one before aiohttp. It saves a tenth of a controller's imports (docs/performance.md). Nothing uses those
contexts: each connection here has its own. One that had none would trust no CA, and fail.
"""

from __future__ import annotations

import ssl
from typing import Any


def _read_no_cas(context: ssl.SSLContext, *_: Any) -> None:
    """Stands in for the two methods by which a context reads the system's CAs."""


_load_default_certs = ssl.SSLContext.load_default_certs
setattr(ssl.SSLContext, "load_default_certs", _read_no_cas)  # noqa: B010 - to mypy, methods are constants
setattr(ssl.SSLContext, "set_default_verify_paths", _read_no_cas)  # noqa: B010
try:
    import aiohttp  # noqa: F401
finally:
    setattr(ssl.SSLContext, "load_default_certs", _load_default_certs)  # noqa: B010
    delattr(ssl.SSLContext, "set_default_verify_paths")  # it is inherited
