"""Samplers: select the requests that become spans.

    requests without a trace:  a share of them
    requests with a trace:     the client's decision, a share of the traces that it samples (GEP-4768), or a share of all

Envoy has samplers for all of these but a share of the traces that clients sample; that is a CEL expression.
"""

from __future__ import annotations

from typing import Final

from cel.expr import syntax_pb2 as cel
from envoy.config.core.v3 import extension_pb2
from envoy.extensions.tracers.opentelemetry.samplers.v3 import (
    cel_sampler_pb2,
    parent_based_sampler_pb2,
    trace_id_ratio_based_sampler_pb2,
)
from envoy.type.v3 import percent_pb2
from google.protobuf.message import Message

from lasthop.engine.outputs.envoy.encode import packed
from lasthop.engine.plan.telemetry import SAMPLED

DIGITS: Final = 3
"""Hexadecimal digits of the trace id that decide: the precision of a share is 1 in 4,096."""
STEPS: Final = 10_000
SCATTER: Final = 7_919
"""A prime, so that consecutive milliseconds spread over all steps."""


def sampler(share: int, parents_share: int | None) -> extension_pb2.TypedExtensionConfig:
    """Returns a sampler. Shares are in millionths; with `parents_share` None, the client's decision is ignored."""
    by_id = _extension("trace_id_ratio_based", _ratio(share))
    if parents_share is None:
        return by_id
    if parents_share == SAMPLED:
        return _extension("parent_based", parent_based_sampler_pb2.ParentBasedSamplerConfig(wrapped_sampler=by_id))
    config = cel_sampler_pb2.CELSamplerConfig()
    config.expression.cel_expr_parsed.expr.CopyFrom(_numbered(_either(share, parents_share)))
    return _extension("cel", config)


def _ratio(share: int) -> trace_id_ratio_based_sampler_pb2.TraceIdRatioBasedSamplerConfig:
    percentage = percent_pb2.FractionalPercent(numerator=share, denominator=percent_pb2.FractionalPercent.MILLION)
    return trace_id_ratio_based_sampler_pb2.TraceIdRatioBasedSamplerConfig(sampling_percentage=percentage)


def _extension(name: str, config: Message) -> extension_pb2.TypedExtensionConfig:
    return extension_pb2.TypedExtensionConfig(name=f"envoy.tracers.opentelemetry.samplers.{name}", typed_config=packed(config))


# --- the expression --------------------------------------------------------------------------------------------------


def _either(share: int, parents_share: int) -> cel.Expr:
    """Builds `"traceparent" in request.headers ? request.headers["traceparent"].matches(...) : ...`."""
    headers, name = _select("request", "headers"), _text("traceparent")
    decision = _call("matches", _call("_[_]", headers, name), _text(sampled_pattern(parents_share)))
    return _call("_?_:_", _call("@in", name, headers), decision, _by_time(share))


def sampled_pattern(share: int) -> str:
    """Matches a share of the sampled traceparents by the end of the trace id, its random part (W3C Trace Context). All
    requests of a trace get the same decision."""
    below = round(16**DIGITS * share / SAMPLED)
    if share and not below:
        below = 1
    return f"(?:{_less_than(below)})-[!-~]{{16}}-[0-9a-f][13579bdf]$" if below else "^$"


def _less_than(limit: int) -> str:
    """Returns a pattern for numbers of `DIGITS` hexadecimal digits below a limit."""
    if limit >= 16**DIGITS:
        return _any(DIGITS)
    digits = f"{limit:0{DIGITS}x}"
    parts = [
        f"{digits[:place]}{_class(int(digit, 16))}{_any(DIGITS - place - 1)}"
        for place, digit in enumerate(digits)
        if digit != "0"
    ]
    return "|".join(parts)


def _class(count: int) -> str:
    """Matches the first `count` hexadecimal digits."""
    return f"[{'0123456789abcdef'[:count]}]"


def _any(count: int) -> str:
    return "[0-9a-f]" * count


def _by_time(share: int) -> cel.Expr:
    """Samples by the time of the request, because a trace that starts here has no id in the expression."""
    if share in (0, SAMPLED):
        return cel.Expr(const_expr=cel.Constant(bool_value=(share == SAMPLED)))
    time = _select("request", "time")
    seconds, milliseconds = _call("getSeconds", time), _call("getMilliseconds", time)
    moment = _call("_+_", _call("_*_", seconds, _int(1_000)), milliseconds)
    step = _call("_%_", _call("_*_", moment, _int(SCATTER)), _int(STEPS))
    return _call("_<_", step, _int(max(1, round(STEPS * share / SAMPLED))))


def _call(function: str, *args: cel.Expr) -> cel.Expr:
    """Builds a call. Methods use their first argument as the target; operators and functions have none."""
    if function in ("matches", "getSeconds", "getMilliseconds"):
        return cel.Expr(call_expr=cel.Expr.Call(function=function, target=args[0], args=args[1:]))
    return cel.Expr(call_expr=cel.Expr.Call(function=function, args=args))


def _select(name: str, field: str) -> cel.Expr:
    operand = cel.Expr(ident_expr=cel.Expr.Ident(name=name))
    return cel.Expr(select_expr=cel.Expr.Select(operand=operand, field=field))


def _text(value: str) -> cel.Expr:
    return cel.Expr(const_expr=cel.Constant(string_value=value))


def _int(value: int) -> cel.Expr:
    return cel.Expr(const_expr=cel.Constant(int64_value=value))


def _numbered(root: cel.Expr) -> cel.Expr:
    """Numbers the nodes, because Envoy requires distinct ids."""
    numbers = iter(range(1, 1_000))

    def number(node: cel.Expr) -> None:
        node.id = next(numbers)
        kind = node.WhichOneof("expr_kind")
        if kind == "call_expr":
            for child in ([node.call_expr.target] if node.call_expr.HasField("target") else []) + list(node.call_expr.args):
                number(child)
        elif kind == "select_expr":
            number(node.select_expr.operand)

    number(root)
    return root
