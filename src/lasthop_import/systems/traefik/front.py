"""Translates entry points to listeners, with the certificates and TLSOptions of their routes."""

from __future__ import annotations

from typing import NamedTuple

from lasthop_import.inputs import Inputs
from lasthop_import.model import (
    Certificate,
    ClientValidation,
    ForeignCertificate,
    ImportedListener,
    ListenerKey,
    SecretCertificate,
    TrustRef,
    keys_of,
)
from lasthop_import.notes import Category, Note, NoteSeverity, SourceRef
from lasthop_import.reader import FieldReader
from lasthop_import.systems.traefik.kinds import CRD, TraefikObjects
from lasthop_import.systems.traefik.static import EntryPoint, Static

_TLS_OPTION = {
    "minVersion": "TLS versions for clients cannot be set by host",
    "maxVersion": "TLS versions for clients cannot be set by host",
    "cipherSuites": "ciphers for clients cannot be set by host",
    "curvePreferences": "curves for clients cannot be set by host",
    "alpnProtocols": "ALPN for clients is the gateway's own",
    "sniStrict": "a host without a certificate has no listener",
    "preferServerCipherSuites": "ciphers for clients cannot be set by host",
    "disableSessionTickets": "session tickets are the gateway's own",
}


class Termination(NamedTuple):
    """The certificate and client validation of a route."""

    certificate: Certificate
    clients: ClientValidation | None = None


class ListenerKeys(NamedTuple):
    plain: tuple[ListenerKey, ...] = ()
    secure: tuple[ListenerKey, ...] = ()


class EntryPointListeners:
    def __init__(self, inputs: Inputs, objects: TraefikObjects, static: Static) -> None:
        self._inputs = inputs
        self._objects = objects
        self._static = static
        self.listeners: list[ImportedListener] = []
        self._default: Certificate | None = None
        self.plain_ports: frozenset[int] = frozenset()
        """Ports with routes without TLS."""

    # --- entry points ------------------------------------------------------------------------------------------------

    def points(self, reader: FieldReader, names: tuple[str, ...], key: str, *, tls: bool) -> tuple[EntryPoint, ...]:
        """Returns the entry points of a route. Lists and omits unknown entry points."""
        if not names:
            return self._default_points(reader, tls=tls)
        return self._named_points(reader, names, key)

    def udp_points(self, reader: FieldReader) -> tuple[EntryPoint, ...]:
        """Returns the entry points of a UDP route: the UDP entry points that it names, or all."""
        names = reader.texts("entryPoints")
        if not names:
            return tuple(point for point in self._static.entry_points.values() if point.udp)
        points = self._named_points(reader, names, "entryPoints", "/udp")
        for point in points:
            if not point.udp:
                text = f"the entry point {point.name} is not for UDP, so the route is not served there"
                remedy = f"If it is, pass --traefik-entrypoint {point.name}={point.port}/udp."
                reader.note(Category.TODO, "entrypoint-unknown", text, "entryPoints", remedy=remedy)
        return tuple(point for point in points if point.udp)

    def _named_points(self, reader: FieldReader, names: tuple[str, ...], key: str, mode: str = "") -> tuple[EntryPoint, ...]:
        points = []
        for name in dict.fromkeys(names):
            point = self._static.entry_points.get(name)
            if point is None:
                text = f"the port of the entry point {name[:100]} is not in the input, so the route is not served there"
                remedy = f"Pass --traefik-entrypoint {name[:100]}=PORT{mode}."
                reader.note(Category.TODO, "entrypoint-unknown", text, key, remedy=remedy)
            else:
                points.append(point)
        return tuple(points)

    def _default_points(self, reader: FieldReader, *, tls: bool) -> tuple[EntryPoint, ...]:
        defaults = self._static.defaults
        if tls:
            return tuple(point for point in defaults if point.tls) or defaults
        kept = tuple(point for point in defaults if not point.tls or point.known)
        if kept != defaults:
            text = "is served on all default entry points; the input does not show that one has TLS, so that one is left out"
            remedy = "Give --traefik-static or --traefik-entrypoint."
            reader.note(Category.CHANGED, "default-entrypoints", text, None, remedy=remedy, severity=NoteSeverity.HIGH)
        return kept

    def http(
        self,
        source: SourceRef,
        points: tuple[EntryPoint, ...],
        hosts: tuple[str, ...],
        tls: Termination | None,
        *,
        only_tls: bool,
    ) -> ListenerKeys | str:
        """Adds the listeners of a route, and returns their keys, or the reason why they cannot be written.

        Traefik detects TLS by the first byte, so an entry point can serve both; a port of a Gateway has one protocol."""
        plain, secure = [], []
        for point in points:
            if not point.tls and only_tls and point.port not in self.plain_ports:
                self._note_tls(source, point)
            if point.tls or (only_tls and point.port not in self.plain_ports):
                secure += self._secure(source, point.port, hosts, tls or Termination(self.default_certificate()))
            elif not only_tls:
                plain.append(ImportedListener(source, point.port, "HTTP"))
        if points and not plain and not secure:
            names = ", ".join(point.name for point in points)
            return f"it has tls on {names}, where other routes have none, and a port of a Gateway has one protocol"
        self.listeners += [*plain, *secure]
        return ListenerKeys(keys_of(plain), keys_of(secure))

    def _note_tls(self, source: SourceRef, point: EntryPoint) -> None:
        text = f"tls makes Traefik serve it with TLS, not in plaintext, on entry point {point.name} too; so does the Gateway"
        note = Note(Category.CHANGED, "tls-on-plain-entrypoint", text, source, severity=NoteSeverity.INFO)
        self._inputs.notes.append(note)

    def _secure(self, source: SourceRef, port: int, hosts: tuple[str, ...], tls: Termination) -> list[ImportedListener]:
        return [
            ImportedListener(source, port, "HTTPS", host, (tls.certificate,), clients=tls.clients) for host in hosts or ("",)
        ]

    def taken(self, port: int, host: str, protocol: str) -> bool:
        """Returns whether a port has listeners that conflict with a listener for connections."""
        listeners = [listener for listener in self.listeners if listener.port == port]
        if protocol == "TCP":
            return bool(listeners)
        return any(
            listener.protocol in ("HTTP", "TCP") or (listener.protocol, listener.hostname) == ("HTTPS", host)
            for listener in listeners
        )

    # --- certificates ------------------------------------------------------------------------------------------------

    def termination(self, tls: FieldReader, namespace: str) -> Termination:
        secret, resolver = tls.text("secretName"), tls.text("certResolver")
        for domain in tls.children("domains"):
            domain.text("main"), domain.texts("sans")
        tls.child("store").ignore("name", "namespace")
        certificate: Certificate
        if secret:
            certificate = SecretCertificate(namespace, secret)
        elif resolver:
            certificate = ForeignCertificate(
                f"Traefik's resolver {resolver[:60]} got it by ACME; let cert-manager do that now"
            )
        else:
            certificate = self.default_certificate()
        options = tls.child("options")
        return Termination(certificate, self.clients(tls, options.text("name"), options.text("namespace") or namespace))

    def clients(self, at: FieldReader, name: str, namespace: str) -> ClientValidation | None:
        """Returns the client validation of a TLSOption: by name, by `namespace-name@kubernetescrd`, or the default."""
        if not name:
            defaults = [document for document in self._objects.of("TLSOption") if document.bare_name == "default"]
            return self._validation(self._inputs.open(defaults[0])) if len(defaults) == 1 else None
        option = self._objects.find_normalized("TLSOption", name.removesuffix(CRD)) if name.endswith(CRD) else None
        option = option or self._objects.find("TLSOption", namespace, name)
        if option is None and name != "default":
            text = f"TLSOption {name[:100]} is not in the input; whether clients need a certificate is unknown"
            at.note(Category.ACCESS_CONTROL, "tls-option-missing", text, None, remedy="Add it to the input.")
        return self._validation(option) if option else None

    def default_certificate(self) -> Certificate:
        """Returns the certificate of the TLSStore `default`, else Traefik's own, which clients do not trust."""
        if self._default is None:
            self._default = ForeignCertificate("Traefik used its default certificate")
            for document in self._objects.of("TLSStore"):
                spec = self._inputs.open(document).child("spec")
                secret = spec.child("defaultCertificate").text("secretName")
                spec.cannot("certificates", "certificates for all hosts are not carried over; name them in the listener")
                spec.cannot("defaultGeneratedCert", "certificates are not generated")
                if secret and document.bare_name == "default":
                    self._default = SecretCertificate(document.namespace, secret)
        return self._default

    def _validation(self, reader: FieldReader) -> ClientValidation | None:
        spec = reader.child("spec")
        for key, text in _TLS_OPTION.items():
            spec.cannot(key, text)
        auth = spec.child("clientAuth")
        secrets, mode = auth.texts("secretNames"), auth.text("clientAuthType") or "NoClientCert"
        everywhere = reader.document.bare_name == "default"
        if mode == "NoClientCert":
            return None
        if mode not in ("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"):
            text = "clients had to show a certificate that Traefik did not verify; the new gateway does not request one"
            auth.note(Category.ACCESS_CONTROL, "clientAuth", text, "clientAuthType", everywhere=everywhere)
            return None
        trust = self._client_cas(auth, secrets)
        if not trust:
            text = "no CA is named, so which clients are accepted is unknown; the new gateway does not request a certificate"
            auth.note(Category.ACCESS_CONTROL, "clientAuth", text, None, everywhere=everywhere)
            return None
        if mode == "VerifyClientCertIfGiven":
            text = (
                "clients with an invalid certificate were refused; the new gateway accepts them, as it does those without one"
            )
            auth.note(Category.LOOSENED, "client-validation-optional", text, "clientAuthType")
        return ClientValidation(trust, mode == "VerifyClientCertIfGiven")

    def _client_cas(self, auth: FieldReader, secrets: tuple[str, ...]) -> tuple[TrustRef, ...]:
        """Returns the usable CAs of clients; all CAs if none is usable."""
        usable = [secret for secret in secrets if self._has_ca(auth.namespace, secret)]
        if len(usable) < len(secrets) or not usable:
            text = "the CAs of clients are not all in Secrets with the key ca.crt; clients with the others are refused"
            auth.note(Category.TIGHTENED, "client-ca", text, "secretNames", remedy="Put each CA under the key ca.crt.")
        return tuple(TrustRef("Secret", auth.namespace, secret) for secret in usable or secrets)

    def _has_ca(self, namespace: str, name: str) -> bool:
        data = self._inputs.data("Secret", namespace, name)
        return data is None or bool(data.get("ca.crt"))
