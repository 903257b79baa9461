"""Default Gateways (GEP-3793) are not served. Asking for one changes nothing and harms nobody, and whoever does is told."""

from __future__ import annotations


def without_effect(field: str, scope: str) -> str:
    """What is said of a Gateway's `defaultScope` or a route's `useDefaultGateways`; nothing if it asks for nothing."""
    if scope in ("", "None"):
        return ""
    return f"{field} {scope} has no effect: default Gateways are not supported, so each route must name its own"
