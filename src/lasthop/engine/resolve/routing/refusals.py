"""Finds unsupported settings in rules. A rule with any of them returns 500, because it must not work without them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from lasthop.base.api import routes as api
from lasthop.engine.plan import reasons
from lasthop.engine.plan.limits import Limits, over
from lasthop.engine.plan.problem import Problem, unsupported_value
from lasthop.engine.plan.routing import PathType
from lasthop.engine.resolve.routing import http_syntax as syntax
from lasthop.engine.resolve.routing.filters import problems as filter_problems
from lasthop.engine.resolve.routing.regexes import Regexes

EXACT = "Exact"
REGEX = "RegularExpression"
PATH_TYPES = frozenset(PathType)


class RuleJudgement(msgspec.Struct, frozen=True):
    problems: tuple[Problem, ...] = ()
    """Unsupported settings. With any, the rule refuses all requests that it matches."""
    unmatchable: frozenset[int] = frozenset()
    """Numbers of matches that Envoy cannot express; they match nothing."""


NOTHING_WRONG = RuleJudgement()


class RouteJudgement(msgspec.Struct, frozen=True, gc=False):
    rules: tuple[RuleJudgement, ...] = ()
    matches: int = 0
    """Number of matches in Envoy's configuration."""
    regex_size: int = 0
    """Sum over all regular expressions."""

    @property
    def all_refused(self) -> bool:
        """Whether every rule is refused. Rules refused only for an unknown filter kind do not count."""
        return all(rule.problems for rule in self.rules) and any(
            p.reason != reasons.INVALID_KIND for rule in self.rules for p in rule.problems
        )


def judge(rules: Sequence[api.RequestRouteRule | api.StreamRouteRule], limits: Limits) -> RouteJudgement:
    regexes = Regexes(limits)
    judgements, matches = [], 0
    for number, rule in enumerate(rules):
        field = f"spec.rules[{number}]"
        if isinstance(rule, api.StreamRouteRule):
            judgements.append(RuleJudgement(tuple(_stream_problems(rule, number, field))))
        else:
            judgements.append(_judge(rule, field, limits, regexes))
            matches += max(1, len(rule.matches)) - len(judgements[-1].unmatchable)
    return RouteJudgement(tuple(judgements), matches, regexes.size)


def _stream_problems(rule: api.StreamRouteRule, number: int, field: str) -> Iterator[Problem]:
    yield from _weight_problems(rule, field)
    if number:
        message = "the rule before it matches every connection, so this one is never used; remove it"
        yield unsupported_value(message, field)


def _judge(rule: api.RequestRouteRule, field: str, limits: Limits, regexes: Regexes) -> RuleJudgement:
    problems = list(filter_problems(rule.filters, f"{field}.filters", limits)) if rule.filters else []
    for number, ref in enumerate(rule.backend_refs):
        if ref.filters:
            problems += filter_problems(ref.filters, f"{field}.backendRefs[{number}].filters", limits, on_backend=True)
    problems += _weight_problems(rule, field)
    unmatchable = set()
    matches: tuple[api.HTTPRouteMatch | api.GRPCRouteMatch, ...] = rule.matches
    for number, match in enumerate(matches):
        if match_problems := list(_match_problems(match, f"{field}.matches[{number}]", limits, regexes)):
            unmatchable.add(number)
            problems += match_problems
    if rule.session_persistence:
        problems += _session_problems(rule, rule.session_persistence, f"{field}.sessionPersistence", limits)
    if not isinstance(rule, api.GRPCRouteRule):
        problems += _time_problems(rule, field, limits)
    return RuleJudgement(tuple(problems), frozenset(unmatchable)) if problems else NOTHING_WRONG


# --- matches ---------------------------------------------------------------------------------------------------------


def _match_problems(
    match: api.HTTPRouteMatch | api.GRPCRouteMatch, field: str, limits: Limits, regexes: Regexes
) -> Iterator[Problem]:
    if isinstance(match, api.GRPCRouteMatch):
        yield from _method_problems(match, f"{field}.method", regexes)
        query: tuple[api.HTTPValueMatch, ...] = ()
    else:
        yield from _path_problems(match, f"{field}.path", regexes)
        query = match.query_params
        if match.method and not syntax.HEADER_NAME.fullmatch(match.method):
            yield unsupported_value(f"{syntax.shown(match.method)} is not a method", f"{field}.method")
    for kind, values in (("headers", match.headers), ("queryParams", query)):
        for number, value in enumerate(values):
            yield from _value_problems(value, f"{field}.{kind}[{number}]", limits, regexes)


def _path_problems(match: api.HTTPRouteMatch, field: str, regexes: Regexes) -> Iterator[Problem]:
    path = match.path
    if path.type not in PATH_TYPES:
        yield unsupported_value(f"type {syntax.word(path.type)} is not supported; use {', '.join(PathType)}", field)
    elif path.type == PathType.REGEX:
        if problem := regexes.problem(path.value):
            yield unsupported_value(problem, field)
    elif len(path.value) > syntax.PATH_LENGTH:
        yield unsupported_value(f"a path of {len(path.value):,} characters; the limit is {syntax.PATH_LENGTH:,}", field)
    elif not path.value.startswith("/") or not syntax.PATH.fullmatch(path.value):
        yield unsupported_value(
            f"{syntax.shown(path.value)} is not a path (RFC 3986); begin it with / and escape other characters", field
        )


def _method_problems(match: api.GRPCRouteMatch, field: str, regexes: Regexes) -> Iterator[Problem]:
    called = match.method
    if called.type == REGEX:
        parts = tuple(filter(None, (called.service, called.method)))
        # Separately and joined: an expression that is balanced only in one of both forms is a mistake.
        if parts and (problem := regexes.problem(*parts, syntax.grpc_path_regex(called.service, called.method))):
            yield unsupported_value(problem, field)
    elif called.type != EXACT:
        yield unsupported_value(f"type {syntax.word(called.type)} is not supported; use {EXACT} or {REGEX}", field)
    else:
        for part, name, form in (
            ("service", called.service, syntax.GRPC_SERVICE),
            ("method", called.method, syntax.GRPC_NAME),
        ):
            if name and (len(name) > syntax.GRPC_LENGTH or not form.fullmatch(name)):
                yield unsupported_value(f"{syntax.shown(name)} is not the name of a gRPC {part}", f"{field}.{part}")


def _value_problems(value: api.HTTPValueMatch, field: str, limits: Limits, regexes: Regexes) -> Iterator[Problem]:
    if not syntax.HEADER_NAME.fullmatch(value.name):
        yield unsupported_value(f"{syntax.shown(value.name)} cannot be the name of a header or query parameter", field)
    if value.type == REGEX:
        if problem := regexes.problem(value.value, quoted=False):
            yield unsupported_value(problem, field)
    elif value.type != EXACT:
        yield unsupported_value(f"type {syntax.word(value.type)} is not supported; use {EXACT} or {REGEX}", field)
    elif (length := len(value.value.encode(errors="replace"))) > limits.header_value_length:
        yield unsupported_value(f"a value of {length:,} bytes; {over(limits, 'header_value_length')}", field)
    elif not syntax.HEADER_VALUE.fullmatch(value.value):
        yield unsupported_value("the value has characters that are not allowed in a request; remove them", field)


# --- numbers and times -----------------------------------------------------------------------------------------------


def _weight_problems(rule: api.RequestRouteRule | api.StreamRouteRule, field: str) -> Iterator[Problem]:
    refs: Sequence[api.HTTPBackendRef | api.BackendRef] = rule.backend_refs
    for number, ref in enumerate(refs):
        if not 0 <= ref.weight <= syntax.MAX_WEIGHT:
            yield unsupported_value(
                f"weight {ref.weight} is not between 0 and {syntax.MAX_WEIGHT:,}", f"{field}.backendRefs[{number}]"
            )
    if sum(ref.weight for ref in refs) > syntax.MAX_WEIGHTS:
        yield unsupported_value(
            f"the sum of the weights exceeds {syntax.MAX_WEIGHTS:,}; use smaller weights", f"{field}.backendRefs"
        )


def _time_problems(rule: api.HTTPRouteRule, field: str, limits: Limits) -> Iterator[Problem]:
    retry = rule.retry
    times = {"timeouts.request": rule.timeouts.request, "timeouts.backendRequest": rule.timeouts.backend_request}
    if retry:
        times["retry.backoff"] = retry.backoff
        if retry.attempts > limits.retry_attempts:
            message = f"{retry.attempts} attempts; {over(limits, 'retry_attempts')}"
            yield unsupported_value(message, f"{field}.retry.attempts")
        if retry.attempts < 0:
            yield unsupported_value(f"attempts {retry.attempts} is negative; write 0 or more", f"{field}.retry.attempts")
        if invalid_codes := [code for code in retry.codes if not 400 <= code <= 599]:
            yield unsupported_value(
                f"{invalid_codes[0]} is not the status of a failed request (400 to 599)", f"{field}.retry.codes"
            )
    for name, duration in times.items():
        if duration and not syntax.is_duration(duration):
            yield unsupported_value(
                f"{syntax.shown(duration)} is not a duration (GEP-2257); write it like 1m30s", f"{field}.{name}"
            )


# --- sessions --------------------------------------------------------------------------------------------------------


def _session_problems(
    rule: api.RequestRouteRule, session: api.SessionPersistence, field: str, limits: Limits
) -> Iterator[Problem]:
    """Yields why session persistence of a rule is not supported: Envoy binds a session to one endpoint of one Service."""
    if len([ref for ref in rule.backend_refs if ref.weight]) > 1:
        message = "session persistence does not work with several backendRefs; use one"
        yield unsupported_value(message, field)
    yield from session_problems(session, field)
    yield from long_session_name(session, field, limits)


def session_problems(session: api.SessionPersistence, field: str) -> Iterator[Problem]:
    """Yields problems of session persistence. Only a cookie's age can end a session. Its name and path are copied into
    responses."""
    if session.type not in ("Cookie", "Header"):
        yield unsupported_value(f"type {syntax.word(session.type)} is not supported; use Cookie or Header", field)
    if session.idle_timeout:
        message = "idleTimeout is not supported, and newer CRDs do not have it; remove it"
        yield unsupported_value(message, f"{field}.idleTimeout")
    if session.absolute_timeout and (session.type != "Cookie" or session.cookie.lifetime_type != "Permanent"):
        message = "absoluteTimeout needs type Cookie and lifetimeType Permanent; set both, or remove it"
        yield unsupported_value(message, f"{field}.absoluteTimeout")
    elif session.absolute_timeout and not syntax.is_duration(session.absolute_timeout):
        message = f"{syntax.shown(session.absolute_timeout)} is not a duration (GEP-2257); write it like 1h30m"
        yield unsupported_value(message, f"{field}.absoluteTimeout")
    name = _session_name(session)
    if name and not syntax.HEADER_NAME.fullmatch(name):
        message = f"{syntax.shown(name)} is not the name of a cookie or header; use letters, digits and hyphens"
        yield unsupported_value(message, f"{field}.{_name_field(session)}")
    path = session.cookie.path
    if session.type == "Cookie" and (
        len(path) > syntax.PATH_LENGTH or not path.startswith("/") or not syntax.PATH.fullmatch(path)
    ):
        message = f"{syntax.shown(path)} is not a cookie path; begin it with / and escape what is not a path (RFC 3986)"
        yield unsupported_value(message, f"{field}.cookie.path")


def long_session_name(session: api.SessionPersistence, field: str, limits: Limits) -> Iterator[Problem]:
    length = len(_session_name(session))
    if length > limits.session_name_length:
        message = f"a name of {length:,} characters; {over(limits, 'session_name_length')}"
        yield unsupported_value(message, f"{field}.{_name_field(session)}")


def _session_name(session: api.SessionPersistence) -> str:
    return session.header.name if session.type == "Header" else session.cookie.name


def _name_field(session: api.SessionPersistence) -> str:
    if session.session_name:
        return "sessionName"
    return "header.name" if session.type == "Header" else "cookie.name"
