"""BackendTLS as Envoy's UpstreamTlsContext, with exactly the required checks."""

from __future__ import annotations

import base64
import functools
import re
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import over_ads, packed
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, San, SanType
from lasthop.engine.plan.tls_options import TLSOptions

SESSION_KEYS: Final = 64
"""TLS 1.3 tickets are used once: 64 let parallel connections resume (docs/measurements.md#tls-sessions)."""

VERSIONS: Final = {
    "1.0": common_pb2.TlsParameters.TLSv1_0,
    "1.1": common_pb2.TlsParameters.TLSv1_1,
    "1.2": common_pb2.TlsParameters.TLSv1_2,
    "1.3": common_pb2.TlsParameters.TLSv1_3,
}

TLS: Final = "envoy.transport_sockets.tls"


def upstream_transport_socket(tls: BackendTLS, alpn: tuple[str, ...] = ()) -> base_pb2.TransportSocket:
    """Returns the TLS of a cluster. `alpn` is set only for protocols whose ALPN Envoy does not derive, as it does for HTTP."""
    context = tls_pb2.UpstreamTlsContext()
    context.CopyFrom(_common(tls.options, alpn))
    context.sni = tls.sni
    if tls.client_certificate:
        shown = secret_config(client_secret_name(tls.client_certificate, tls.client_digest))
        context.common_tls_context.tls_certificate_sds_secret_configs.append(shown)
    _validate(context.common_tls_context, tls)
    return base_pb2.TransportSocket(name=TLS, typed_config=packed(context))


@functools.lru_cache(maxsize=256)
def _common(options: TLSOptions, alpn: tuple[str, ...]) -> tls_pb2.UpstreamTlsContext:
    """Returns the common part of TLS contexts. Callers copy it and never change it."""
    parameters = common_pb2.TlsParameters(
        tls_minimum_protocol_version=VERSIONS[options.lowest],
        tls_maximum_protocol_version=VERSIONS[options.max_version],
        cipher_suites=options.cipher_suites,
        ecdh_curves=options.curves,
        signature_algorithms=options.signature_algorithms,
    )
    return tls_pb2.UpstreamTlsContext(
        max_session_keys=UInt32Value(value=SESSION_KEYS if options.session_reuse == "true" else 0),
        common_tls_context=tls_pb2.CommonTlsContext(alpn_protocols=alpn, tls_params=parameters),
    )


def _validate(context: tls_pb2.CommonTlsContext, tls: BackendTLS) -> None:
    """Adds the checks. Without a validation context Envoy checks nothing, so it is omitted only under a waiver of All."""
    if tls.strength is Strength.WAIVED_ALL:
        if tls.waiver is None or tls.waiver.strength is not Strength.WAIVED_ALL:
            raise ValueError(f"{tls.source} would check nothing, and no waiver allows that")
        return
    checks = context.validation_context
    # No `max_verify_depth` either: Envoy 1.40 accepts and ignores it here (docs/measurements.md#unsafe-settings).
    # Never `trust_chain_verification: ACCEPT_UNTRUSTED`: it turns off pins, too (docs/measurements.md#unsafe-settings).
    # Never `system_root_certs`: Envoy 1.40 accepts it and verifies nothing (docs/measurements.md#unsafe-settings).
    if isinstance(tls.trust, Anchors):
        checks.trusted_ca.inline_bytes = tls.trust.pem
        checks.only_verify_leaf_cert_crl = tls.trust.crl_of_leaf
        if tls.trust.crl:
            checks.crl.inline_bytes = tls.trust.crl
    elif tls.trust:
        checks.trusted_ca.filename = tls.trust.path
    for name in tls.names:
        _add_matcher(checks, name)
    if tls.pins:
        checks.verify_certificate_spki.extend(sorted(base64.b64encode(pin).decode() for pin in tls.pins.keys))
        checks.verify_certificate_hash.extend(sorted(pin.hex() for pin in tls.pins.certificates))
    checks.allow_expired_certificate = tls.strength is Strength.WAIVED_EXPIRY


def secret_config(name: str) -> secret_pb2.SdsSecretConfig:
    return secret_pb2.SdsSecretConfig(name=name, sds_config=over_ads())


def client_secret_name(secret: Key, digest: str) -> str:
    return f"{secret.path}@{digest}"


def _add_matcher(context: common_pb2.CertificateValidationContext, name: San) -> None:
    if name.type is SanType.URI:
        matcher = context.match_typed_subject_alt_names.add(san_type=common_pb2.SubjectAltNameMatcher.URI)
        matcher.matcher.exact = name.value
    else:
        matcher = context.match_typed_subject_alt_names.add(san_type=common_pb2.SubjectAltNameMatcher.DNS)
        matcher.matcher.safe_regex.regex = dns_regex(name.value)


def dns_regex(name: str) -> str:
    """Matches the certificate names that a policy's name accepts, by RFC 9525 6.3: a wildcard only as the whole left-most
    label, for one label. A regex compares the SAN literally; Envoy's exact matcher would also accept `f*.example.com`.

    A wildcard in the policy accepts a certificate that carries that wildcard or any one-label name under it.
    """
    first, dot, domain = name.partition(".")
    if not dot:
        return f"(?i){re.escape(first)}"
    label = r"(\*|[a-z0-9_-]+)" if first == "*" else rf"({re.escape(first)}|\*)"
    return rf"(?i){label}\.{re.escape(domain)}"
