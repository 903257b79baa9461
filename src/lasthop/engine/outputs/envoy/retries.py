"""Retries and ejection in Envoy: those that a route configures, and the defaults of every route.

    HTTP, gRPC     VirtualHost.retry_policy, which a route's own replaces; bounded by the cluster's retry budget
    connections    TcpProxy.max_connect_attempts
    endpoints      Cluster.outlier_detection

A retry stays in its cluster, so weights keep their meaning and the TLS is the same.
"""

from __future__ import annotations

import functools
from typing import Final

from envoy.config.cluster.v3 import circuit_breaker_pb2, outlier_detection_pb2
from envoy.config.core.v3 import backoff_pb2
from envoy.config.route.v3 import route_components_pb2 as rc
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from envoy.extensions.retry.host.previous_hosts.v3 import previous_hosts_pb2
from envoy.type.v3 import percent_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.engine.outputs.envoy.encode import encode, field, packed, seconds
from lasthop.engine.plan import routing
from lasthop.engine.plan.upstream import ConnectRules, Protocol, RetryBudget

UNSENT: Final = ("connect-failure", "refused-stream", "reset-before-request")
"""Requests that never reached the backend: no connection or no handshake, or a stream that it refused unprocessed. A reset
after the request was sent is not retried: it may have had its effect."""
_OTHER_HOSTS: Final = rc.RetryPolicy.RetryHostPredicate(
    name="envoy.retry_host_predicates.previous_hosts", typed_config=packed(previous_hosts_pb2.PreviousHostsPredicate())
)
"""A retry goes to an endpoint that has not failed yet, as long as there is one."""
MAX_HOST_SELECTIONS: Final = 50
"""Limit of host selections for one retry. An endpoint that fails at once has the fewest requests, so of two it is chosen three
times out of four."""
LONGEST_PAUSE: Final = 60.0
UNSENT_PAUSE: Final = 0.001
"""Pause before a retry on another endpoint: Envoy's minimum. During the pause, an arriving body may exceed the buffer."""
STREAM_PAUSE: Final = 0.025
"""Pause before a connection retry, which may reach the same endpoint unless it is ejected by then."""

BUDGET_INTERVAL: Final = 3
"""The field number of `budget_interval` in a RetryBudget: Envoy has it since 1.39, xds-protos does not yet."""
MAX_EJECTED_PERCENT: Final = 50
"""Percent of the endpoints of a hop. The last endpoint is never ejected, and half of them keep the load if the network or the
gateway is at fault. Envoy's panic mode, which ignores ejections, starts below half."""
INTERVAL: Final = 5.0
"""Seconds of an evaluation interval."""
MIN_REQUESTS: Final = 3
EJECTED_AFTER: Final = 2
"""Consecutive failed connections, for streams only, where Envoy counts nothing else as one."""


def route_retry(retry: routing.Retry, try_timeout: float | None) -> rc.RetryPolicy:
    """Returns the retry policy of a rule. Zero attempts give an empty policy, which disables the default."""
    if not retry.attempts:
        return rc.RetryPolicy()
    # A limit for one try means that another one follows (HTTPRouteRetry.backoff). Envoy cannot distinguish that from a reset.
    on = [*UNSENT, *(["retriable-status-codes"] if retry.codes else []), *(["reset"] if try_timeout else [])]
    policy = _elsewhere(on, retry.attempts)
    policy.retriable_status_codes.extend(retry.codes)
    if try_timeout:
        policy.per_try_timeout.CopyFrom(seconds(try_timeout))
    if retry.backoff:
        policy.retry_back_off.base_interval.CopyFrom(seconds(retry.backoff))
        policy.retry_back_off.max_interval.CopyFrom(seconds(max(retry.backoff, min(10 * retry.backoff, LONGEST_PAUSE))))
    return policy


@functools.cache
def host_retry(retries: int) -> bytes:
    """Returns the default retry policy of a virtual host's routes, as fields of the host."""
    if not retries:
        return b""
    policy = _elsewhere(UNSENT, retries)
    policy.retry_back_off.base_interval.CopyFrom(seconds(UNSENT_PAUSE))
    policy.retry_back_off.max_interval.CopyFrom(seconds(UNSENT_PAUSE))
    return encode(rc.VirtualHost(retry_policy=policy))


def _elsewhere(on: tuple[str, ...] | list[str], attempts: int) -> rc.RetryPolicy:
    return rc.RetryPolicy(
        retry_on=",".join(on),
        num_retries=UInt32Value(value=attempts),
        retry_host_predicate=[_OTHER_HOSTS],
        host_selection_retry_max_attempts=MAX_HOST_SELECTIONS,
    )


def budget_message(budget: RetryBudget) -> circuit_breaker_pb2.CircuitBreakers.Thresholds.RetryBudget:
    message = circuit_breaker_pb2.CircuitBreakers.Thresholds.RetryBudget(
        budget_percent=percent_pb2.Percent(value=budget.percent), min_retry_concurrency=UInt32Value(value=budget.minimum)
    )
    if budget.interval:
        message.MergeFromString(field(BUDGET_INTERVAL, encode(seconds(budget.interval))))
    return message


def try_again(proxy: tcp_proxy_pb2.TcpProxy, rules: ConnectRules) -> None:
    """Retries connections to a single backend. With several, Envoy would choose a backend again for each try, and so change
    their shares."""
    if not rules.retries:
        return
    # Envoy may choose a failing endpoint again until it is ejected.
    extra = EJECTED_AFTER if rules.ejection_seconds else 0
    proxy.max_connect_attempts.value = 1 + rules.retries + extra
    proxy.backoff_options.CopyFrom(backoff_pb2.BackoffStrategy(base_interval=seconds(STREAM_PAUSE)))


def ejection(protocol: Protocol, rules: ConnectRules) -> outlier_detection_pb2.OutlierDetection | None:
    """Returns the ejection settings: only failed connections eject an endpoint, responses never do.

    Envoy also counts reset and timed-out requests as failed connections (`LocalOriginConnectFailed`), and clients can provoke
    resets. But each request with a connection also counts as a success, so HTTP uses the failure share: an endpoint is ejected
    only if no request could be sent to it. Streams have no such second kind of failure."""
    if not rules.ejection_seconds or protocol is Protocol.UDP:
        return None
    off, all_of_them = UInt32Value(value=0), UInt32Value(value=100)
    length = seconds(rules.ejection_seconds)
    detection = outlier_detection_pb2.OutlierDetection(
        split_external_local_origin_errors=True,
        interval=seconds(INTERVAL),
        base_ejection_time=length,
        max_ejection_time=length,
        max_ejection_percent=UInt32Value(value=MAX_EJECTED_PERCENT),
        enforcing_consecutive_5xx=off,
        enforcing_success_rate=off,
        enforcing_local_origin_success_rate=off,
    )
    if protocol.http:
        detection.enforcing_consecutive_local_origin_failure.CopyFrom(off)
        detection.enforcing_failure_percentage_local_origin.CopyFrom(all_of_them)
        detection.failure_percentage_threshold.CopyFrom(all_of_them)
        detection.failure_percentage_minimum_hosts.value = 2
        detection.failure_percentage_request_volume.value = MIN_REQUESTS
    else:
        detection.consecutive_local_origin_failure.value = EJECTED_AFTER
    return detection
