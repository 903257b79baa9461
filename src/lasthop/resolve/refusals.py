"""What a rule of an HTTPRoute or GRPCRoute asks for and cannot have: such a rule refuses, never as if it had not asked."""

from __future__ import annotations

from collections.abc import Iterator

import re2

from lasthop.api.routes import GRPCRouteMatch, HTTPRouteMatch, RequestRouteRule, SessionPersistence
from lasthop.plan import reasons
from lasthop.plan.routing import PathType, RouteProblem
from lasthop.resolve.filters import problems as filter_problems


def refusals(rule: RequestRouteRule, field: str) -> tuple[RouteProblem, ...]:
    """Everything in a rule's text that cannot be done."""
    return tuple(_refusals(rule, field))


def _refusals(rule: RequestRouteRule, field: str) -> Iterator[RouteProblem]:
    yield from filter_problems(rule.filters, f"{field}.filters")
    for number, ref in enumerate(rule.backend_refs):
        yield from filter_problems(ref.filters, f"{field}.backendRefs[{number}].filters", on_backend=True)
    matches: tuple[HTTPRouteMatch | GRPCRouteMatch, ...] = rule.matches
    for number, match in enumerate(matches):
        yield from _match_problems(match, f"{field}.matches[{number}]")
    yield from _session_problems(rule, f"{field}.sessionPersistence")


def can_match(match: HTTPRouteMatch | GRPCRouteMatch) -> bool:
    """Whether Envoy can be asked for it at all; one that it cannot be asked for matches nothing."""
    return not any(_match_problems(match, ""))


def _match_problems(match: HTTPRouteMatch | GRPCRouteMatch, field: str) -> Iterator[RouteProblem]:
    if isinstance(match, GRPCRouteMatch):
        called = match.method
        for name, pattern in (("service", called.service), ("method", called.method)):
            if called.type != "Exact" and pattern:
                yield from _regex_problem(pattern, f"{field}.method.{name}")
    elif match.path.type == PathType.REGEX:
        yield from _regex_problem(match.path.value, f"{field}.path")
    query = match.query_params if isinstance(match, HTTPRouteMatch) else ()
    for kind, values in (("headers", match.headers), ("queryParams", query)):
        for number, value in enumerate(values):
            if value.type != "Exact":
                yield from _regex_problem(value.value, f"{field}.{kind}[{number}]")


def _regex_problem(pattern: str, field: str) -> Iterator[RouteProblem]:
    """Tried with Envoy's own engine: one bad expression would make Envoy refuse the whole route table."""
    if not pattern:
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, "an empty regular expression; write .* for any text", field)
        return
    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(pattern, options)
    except re2.error as error:
        said = error.args[0].decode(errors="replace")
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, f"{pattern!r} is no RE2 regular expression ({said}); correct it", field)


def _session_problems(rule: RequestRouteRule, field: str) -> Iterator[RouteProblem]:
    """Envoy keeps a session with one endpoint of one Service."""
    session = rule.session_persistence
    if session is None:
        return
    if len([ref for ref in rule.backend_refs if ref.weight]) > 1:
        message = "a session cannot be kept over several backendRefs; use one"
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, field)
    yield from session_problems(session, field)


def session_problems(session: SessionPersistence, field: str) -> Iterator[RouteProblem]:
    """Only a cookie's own age can end a session."""
    if session.idle_timeout:
        message = "idleTimeout cannot be done, and newer bundles do not have it; remove it"
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, f"{field}.idleTimeout")
    if session.absolute_timeout and (session.type != "Cookie" or session.cookie.lifetime_type != "Permanent"):
        message = "absoluteTimeout needs type Cookie and lifetimeType Permanent; without those remove it"
        yield RouteProblem(reasons.UNSUPPORTED_VALUE, message, f"{field}.absoluteTimeout")
