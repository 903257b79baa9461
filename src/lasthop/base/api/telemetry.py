"""XTelemetryPolicy: tracing settings of a Gateway, with the collector."""

from __future__ import annotations

from lasthop.base.api.meta import Object, Struct
from lasthop.base.api.policies import ForeignPolicyStatus
from lasthop.base.api.routes import BackendObjectReference, Fraction, HTTPHeader
from lasthop.base.api.traffic import LocalPolicyTargetReference

DEFAULT: str = "ImplementationDefault"


class TracingProvider(Struct, frozen=True):
    backend_ref: BackendObjectReference
    headers: tuple[HTTPHeader, ...] = ()


class ParentBasedSampling(Struct, frozen=True):
    mode: str = DEFAULT
    sampling_rate: Fraction | None = None


class Attribute(Struct, frozen=True):
    name: str
    source_type: str
    header_name: str = ""
    literal_value: str = ""
    attribute_key: str = ""


class Tracing(Struct, frozen=True):
    mode: str = DEFAULT
    provider: TracingProvider | None = None
    sampling_rate: Fraction | None = None
    parent_based_sampling: ParentBasedSampling = ParentBasedSampling()
    service_name: str = ""
    span_name: str = ""
    attributes: tuple[Attribute, ...] = ()


class XTelemetryPolicySpec(Struct, frozen=True):
    target_refs: tuple[LocalPolicyTargetReference, ...] = ()
    tracing: Tracing = Tracing()


class XTelemetryPolicy(Object, frozen=True):
    spec: XTelemetryPolicySpec = XTelemetryPolicySpec()
    status: ForeignPolicyStatus = ForeignPolicyStatus()
    """Only the entries of other controllers matter."""
