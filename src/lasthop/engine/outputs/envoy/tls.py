"""BackendTLS as Envoy's UpstreamTlsContext: exactly the checks that were asked for."""

from __future__ import annotations

import base64
import functools
import re
from typing import Final

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2, tls_pb2
from envoy.type.matcher.v3 import regex_pb2, string_pb2
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import UInt32Value

from lasthop.base.api.meta import Key
from lasthop.engine.outputs.envoy.encode import encode, field, over_ads, packed
from lasthop.engine.plan.strength import Strength
from lasthop.engine.plan.tls import Anchors, BackendTLS, San, SanType, Trust
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


_TYPED_CONFIG: Final = base_pb2.TransportSocket.TYPED_CONFIG_FIELD_NUMBER
_SNI: Final = tls_pb2.UpstreamTlsContext.SNI_FIELD_NUMBER
_COMMON: Final = tls_pb2.UpstreamTlsContext.COMMON_TLS_CONTEXT_FIELD_NUMBER
_CERTIFICATES: Final = tls_pb2.CommonTlsContext.TLS_CERTIFICATE_SDS_SECRET_CONFIGS_FIELD_NUMBER
_VALIDATION: Final = tls_pb2.CommonTlsContext.VALIDATION_CONTEXT_FIELD_NUMBER
_TRUSTED_CA: Final = common_pb2.CertificateValidationContext.TRUSTED_CA_FIELD_NUMBER
_NAMES: Final = common_pb2.CertificateValidationContext.MATCH_TYPED_SUBJECT_ALT_NAMES_FIELD_NUMBER
_MATCHER: Final = common_pb2.SubjectAltNameMatcher.MATCHER_FIELD_NUMBER

_SOCKET: Final = encode(base_pb2.TransportSocket(name=TLS))
_CONTEXT: Final = encode(packed(tls_pb2.UpstreamTlsContext()))
"""What precedes the packed bytes: an Any with a type and no value."""
_URI: Final = encode(common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.URI))
_DNS: Final = encode(common_pb2.SubjectAltNameMatcher(san_type=common_pb2.SubjectAltNameMatcher.DNS))


def upstream_transport_socket(tls: BackendTLS, alpn: tuple[str, ...] = ()) -> bytes:
    """Encodes the TLS of a cluster, a TransportSocket. `alpn` only where Envoy does not work it out by itself, as it does for
    HTTP."""
    shown = client_secret_name(tls.client_certificate, tls.client_digest) if tls.client_certificate else ""
    certificates = field(_CERTIFICATES, encode(secret_config(shown))) if shown else b""
    # Encoded messages merge by concatenation: this CommonTlsContext adds to the one that is alike in many clusters.
    own = field(_COMMON, certificates + _validation(tls))
    context = b"".join((_alike(tls.options, alpn), field(_SNI, tls.sni.encode()), own))
    return _SOCKET + field(_TYPED_CONFIG, _CONTEXT + field(AnyMessage.VALUE_FIELD_NUMBER, context))


@functools.lru_cache(maxsize=256)
def _alike(options: TLSOptions, alpn: tuple[str, ...]) -> bytes:
    """Encodes what thousands of hops have in common, an UpstreamTlsContext."""
    parameters = common_pb2.TlsParameters(
        tls_minimum_protocol_version=VERSIONS[options.lowest],
        tls_maximum_protocol_version=VERSIONS[options.max_version],
        cipher_suites=options.cipher_suites,
        ecdh_curves=options.curves,
    )
    context = tls_pb2.UpstreamTlsContext(
        max_session_keys=UInt32Value(value=SESSION_KEYS if options.session_reuse == "true" else 0),
        common_tls_context=tls_pb2.CommonTlsContext(alpn_protocols=alpn, tls_params=parameters),
    )
    return encode(context)


def _validation(tls: BackendTLS) -> bytes:
    """Encodes what is checked, as a field of a CommonTlsContext. Nothing, which Envoy takes as "check nothing", only where
    everything is waived."""
    if tls.strength is Strength.WAIVED_ALL:
        if tls.waiver is None or tls.waiver.strength is not Strength.WAIVED_ALL:
            raise ValueError(f"{tls.source} would check nothing, and no waiver allows that")
        return b""
    checks = [field(_TRUSTED_CA, _trusted_ca(tls.trust))] if tls.trust else []
    checks += [field(_NAMES, _matcher(name)) for name in tls.names]
    anchors = tls.trust if isinstance(tls.trust, Anchors) else Anchors(b"")
    if tls.pins or anchors.crl or anchors.crl_of_leaf or tls.strength is Strength.WAIVED_EXPIRY:
        checks.append(encode(_rare_checks(tls, anchors)))
    return field(_VALIDATION, b"".join(checks))


def _rare_checks(tls: BackendTLS, anchors: Anchors) -> common_pb2.CertificateValidationContext:
    # No `max_verify_depth` either: Envoy 1.40 takes it and does not look at it here (docs/measurements.md#unsafe-settings).
    # Never `trust_chain_verification: ACCEPT_UNTRUSTED`: it turns off pins, too (docs/measurements.md#unsafe-settings).
    return common_pb2.CertificateValidationContext(
        verify_certificate_spki=sorted(base64.b64encode(pin).decode() for pin in tls.pins.keys),
        verify_certificate_hash=sorted(pin.hex() for pin in tls.pins.certificates),
        crl=base_pb2.DataSource(inline_bytes=anchors.crl) if anchors.crl else None,
        only_verify_leaf_cert_crl=anchors.crl_of_leaf,
        allow_expired_certificate=tls.strength is Strength.WAIVED_EXPIRY,
    )


def secret_config(name: str) -> secret_pb2.SdsSecretConfig:
    return secret_pb2.SdsSecretConfig(name=name, sds_config=over_ads())


def client_secret_name(secret: Key, digest: str) -> str:
    return f"{secret.path}@{digest}"


def _trusted_ca(trust: Trust) -> bytes:
    """Encodes a DataSource."""
    # Never `system_root_certs`: Envoy 1.40 takes it and verifies nothing (docs/measurements.md#unsafe-settings).
    if isinstance(trust, Anchors):
        return field(base_pb2.DataSource.INLINE_BYTES_FIELD_NUMBER, trust.pem)
    return field(base_pb2.DataSource.FILENAME_FIELD_NUMBER, trust.path.encode())


def _matcher(name: San) -> bytes:
    """Encodes a SubjectAltNameMatcher."""
    if name.type is SanType.URI:
        return _URI + field(_MATCHER, field(string_pb2.StringMatcher.EXACT_FIELD_NUMBER, name.value.encode()))
    regex = field(regex_pb2.RegexMatcher.REGEX_FIELD_NUMBER, dns_regex(name.value).encode())
    return _DNS + field(_MATCHER, field(string_pb2.StringMatcher.SAFE_REGEX_FIELD_NUMBER, regex))


def dns_regex(name: str) -> str:
    """Matches the certificate names that a policy's name accepts, by RFC 9525 6.3: a wildcard only as the whole left-most
    label, for one label. A regex sees the SAN as it is written; Envoy's own exact matcher would also accept `f*.example.com`.

    A wildcard in the policy accepts a certificate that carries that wildcard or any one-label name under it.
    """
    first, dot, rest = name.partition(".")
    if not dot:
        return f"(?i){re.escape(first)}"
    label = r"(\*|[a-z0-9_-]+)" if first == "*" else rf"({re.escape(first)}|\*)"
    return rf"(?i){label}\.{re.escape(rest)}"
