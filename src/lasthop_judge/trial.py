"""Runs one case: waits for its route, sends requests, applies changes, and compares the observation with the requirement."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from lasthop_judge import client
from lasthop_judge.client import ClientResponse
from lasthop_judge.model import (
    Case,
    CaseVerdict,
    Expected,
    ExpectedCondition,
    Fault,
    FaultSeverity,
    GatewayRole,
    Json,
    Outcome,
    Policy,
    RouteType,
    Serving,
    StatusCheck,
    Step,
)
from lasthop_judge.objects import (
    CANARY_PATH,
    STREAM_CANARIES,
    RunSettings,
    backend_key,
    canary_hostname,
    hostname_of,
    listener_of,
    path_of,
    serving_document,
)

REFUSALS_REQUIRED: Final = 3
"""Refusals in a row that count as one."""
PASSES_REQUIRED: Final = 2
PAUSE: Final = 0.15
NO_CONNECTION_SECONDS: Final = 2.0
"""Seconds for which requests must be refused if the backend sees no connection: a gateway that does not know the endpoints yet
refuses everything."""
MIRROR_WAIT: Final = 1.5
"""Seconds to wait for a mirrored request."""
STREAM_SETTLE: Final = 2.0
FOREIGN_CONTROLLER: Final = "judge.invalid/another-controller"
EDITED: Final = "edited.example"


@dataclasses.dataclass(frozen=True)
class Patience:
    """Seconds to wait for the required behaviour."""

    first: float = 60.0
    """Until a route is served."""
    passes: float = 30.0
    refused: float = 10.0
    """Until traffic that must be refused is refused; the report notes how long it passed."""
    change: float = 60.0
    """After a change at run time."""
    status: float = 20.0
    pooled: float = 20.0
    """The time after a change until the backend ends older connections. GEP-1897 requires verification “before the connection
    is made”, so requests over those are noted and not a fault, unless the implementation promises more."""


class JudgeError(Exception):
    """The environment cannot do what a case needs, so the result shows nothing about the gateway."""

    def __init__(self, message: str, *, absent: bool = False) -> None:
        """`absent`: the cluster does not serve the kind of an object."""
        super().__init__(message)
        self.absent = absent


class Testbed(Protocol):
    """The environment of a run: objects, backend and gateway. Its methods raise `JudgeError`."""

    has_status: bool

    @property
    def rejected(self) -> Mapping[str, JudgeError]:
        """Returns the cases, by id, whose objects could not be created."""
        ...

    async def put(self, case: Case, documents: Sequence[Json]) -> None: ...

    async def remove(self, case: Case, documents: Sequence[Json]) -> None: ...

    async def status(self, kind: str, name: str) -> Json:
        """Returns the object with its metadata and status; empty if it is missing."""
        ...

    async def write_status(self, kind: str, name: str, status: Json) -> bool:
        """Writes a status as another controller would, and returns whether the testbed allows it."""
        ...

    async def records(self, key: str) -> list[Json]: ...

    async def serve(self, key: str, serving: Json) -> None:
        """Changes what a port of the backend serves, and ends its connections."""
        ...

    def address(self, role: GatewayRole, listener: str) -> tuple[str, int]: ...

    def repro_commands(self, case: Case, policy: Policy | None, service: str) -> tuple[str, ...]:
        """Returns commands by which a reader repeats a request of the case, while its objects and the backend exist."""
        ...


class _Failed(Exception):
    def __init__(self, severity: FaultSeverity, seen: str) -> None:
        self.severity, self.seen = severity, seen


class _Unjudged(Exception):
    """The testbed cannot show the behaviour that the case tests."""


class _Unserved(_Unjudged):
    """The gateway does not serve the route at all, so the result shows nothing about the last hop."""


@dataclasses.dataclass(frozen=True)
class _Phase:
    """A request and the required response."""

    expect: Expected
    title: str = ""
    sni: str = ""
    alpn: str = ""
    client: bool = False
    conditions: tuple[ExpectedCondition, ...] = ()
    service: str = "backend"
    port: str = "https"
    seconds: float = 30.0
    after_plaintext: bool = False
    """Plaintext was correct before the change, so it may continue for a while."""


class Trial:
    def __init__(
        self, testbed: Testbed, settings: RunSettings, case: Case, patience: Patience, unserved: set[RouteType]
    ) -> None:
        """`unserved`: kinds of routes for which another trial has waited without success. All trials of a run share it."""
        self.testbed, self.settings, self.case, self.patience = testbed, settings, case, patience
        self._unserved = unserved
        self._policy_now = next(iter(case.policies), None)
        self._service = case.all_services[0].name
        self._notes: list[str] = []
        self._seen = 0
        """The backend's clock when it was last read."""
        self._changed = 0
        """The backend's clock at the last change."""
        self._connected = False
        """The backend saw a connection in the present phase."""
        self._over_old = False
        """The last request arrived over a connection from before the change."""

    async def run(self) -> CaseVerdict:
        begun, step, case = time.monotonic(), "", self.case
        faults: list[Fault] = []
        outcome, why, unserved = Outcome.PASS, "", False
        try:
            if rejected := self.testbed.rejected.get(case.id):
                raise rejected
            await self._wait_served()
            for phase, change in self._phases():
                step, self._service = phase.title, phase.service
                if change:
                    await self._change(change)
                await self._judge_phase(phase)
            for check in case.checks:
                await self._check(check)
        except _Failed as failed:
            faults.append(Fault(failed.severity, failed.seen, step))
            outcome = Outcome.FAIL
            if case.optional and failed.severity is FaultSeverity.CLOSED and not await self._claims_support():
                outcome, why = Outcome.NOT_CLAIMED, f"implementation-specific; refused: {failed.seen}"
                faults = []
        except _Unjudged as unjudged:
            outcome, why, unserved = Outcome.NOT_RUN, str(unjudged), isinstance(unjudged, _Unserved)
        except JudgeError as error:
            outcome, why, unserved = Outcome.NOT_RUN, str(error), not error.absent
        failed_case = outcome is Outcome.FAIL
        return CaseVerdict(
            case,
            outcome,
            tuple(faults),
            why,
            tuple(self._notes),
            round(time.monotonic() - begun, 2),
            self._repro_commands() if failed_case else (),
            tuple(self.settings.documents(case)) if failed_case else (),
            unserved,
        )

    def _repro_commands(self) -> tuple[str, ...]:
        again = f"# lasthop judge … --keep --cases '^{self.case.id}$', and then:"
        return (again, *self.testbed.repro_commands(self.case, self._policy_now, self._service))

    def _phases(self) -> list[tuple[_Phase, Step | None]]:
        case, patience = self.case, self.patience
        seconds = patience.refused if case.expect.refused else patience.passes
        service = case.all_services[0].name
        first = _Phase(case.expect, "", case.sni, case.alpn, case.client, case.conditions, service, case.port, seconds)
        phases: list[tuple[_Phase, Step | None]] = [(first, None)]
        for step in case.steps:
            before = phases[-1][0]
            phase = _Phase(
                step.expect,
                step.title,
                step.sni,
                conditions=step.conditions,
                service=step.service or before.service,
                port=before.port,
                seconds=patience.change,
                after_plaintext=before.expect is Expected.PLAINTEXT or bool(step.service and step.service != before.service),
            )
            phases.append((phase, step))
        return phases

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _wait_served(self) -> None:
        """Waits until the gateway serves the case's route, and until its status is of the present generation."""
        case = self.case
        deadline = time.monotonic() + (0 if case.via in self._unserved else self.patience.first)
        while case.via is not RouteType.UDP and not (answer := await self._ask_canary()).backend.startswith("canary."):
            if time.monotonic() > deadline:
                self._unserved.add(case.via)
                raise _Unserved(f"{_kind(case.via)} to a backend without a policy is not served: {answer.shown}")
            await asyncio.sleep(PAUSE)
        self._unserved.discard(case.via)
        if case.via.stream:
            await self._wait_listening()
            await asyncio.sleep(STREAM_SETTLE)
        if not self.testbed.has_status:
            return
        deadline = time.monotonic() + min(self.patience.first, self.patience.refused)
        for policy in self.case.policies:
            while not await self._is_current(policy.name):
                if time.monotonic() > deadline:
                    return  # an implementation without status is judged by traffic
                await asyncio.sleep(PAUSE)

    async def _wait_listening(self) -> None:
        """Waits for the listener of a stream; the canary has another one. A gateway may leave it closed if the policy has no
        CA."""
        case, loop = self.case, asyncio.get_running_loop()
        if case.via is RouteType.UDP:
            return
        address = self.testbed.address(self.settings.gateway_of(case), listener_of(case))
        deadline = time.monotonic() + self.patience.refused
        while not await loop.run_in_executor(None, client.accepts, address):
            if time.monotonic() > deadline:
                names = {bundle.name for bundle in case.bundles}
                if all(ref.name in names for policy in case.policies for ref in policy.refs):
                    raise _Unserved(f"the listener of {_kind(case.via)} accepts no connection")
                self._notes.append("the listener accepts no connection")
                return
            await asyncio.sleep(PAUSE)

    async def _is_current(self, policy: str) -> bool:
        if not (document := await self._policy(policy)):
            return True
        generation = document["metadata"].get("generation")
        entries = _entries(document)
        return bool(entries) and all(condition.get("observedGeneration") == generation for condition in _conditions(entries))

    async def _change(self, step: Step) -> None:
        case, settings = self.case, self.settings
        if not settings.dated and any(policy.born for policy in step.policies):
            await asyncio.sleep(1.1)
        for removed in step.remove:
            await self.testbed.remove(case, settings.of(case, removed))
        for part in step.put:
            self._policy_now = part if isinstance(part, Policy) else self._policy_now
            await self.testbed.put(case, settings.of(case, part))
        for port, serving in step.serve:
            await self._serve(port, serving)
        if step.withdraw:
            permission = settings.adapter.permission(str(case.role), False)
            assert permission
            await self.testbed.put(case, [settings.namespaced(document) for document in permission.objects])

    def _serving(self, phase: _Phase) -> Serving:
        changed = [serving for step in self.case.steps for port, serving in step.serve if port == phase.port]
        named = (port.serving for service in self.case.all_services for port in service.ports if port.name == phase.port)
        current = next(iter(changed), None) or next(iter(named))
        assert current
        return current

    async def _serve(self, port: str, serving: Serving) -> None:
        key = backend_key(self.case, self.case.all_services[0].name, port)
        await self.testbed.serve(key, serving_document(serving, self.settings.issuer))

    # --- traffic ------------------------------------------------------------------------------------------------------

    async def _ask(self, path: str) -> ClientResponse:
        return await self._ask_at(self.settings.gateway_of(self.case), listener_of(self.case), hostname_of(self.case), path)

    async def _ask_canary(self) -> ClientResponse:
        """Sends a request to the backend without a policy: by the case's own route, or for streams by the shared one."""
        if self.case.via in STREAM_CANARIES:
            return await self._ask_at(GatewayRole.PLAIN, STREAM_CANARIES[self.case.via], canary_hostname(self.case.via), "/")
        return await self._ask(CANARY_PATH)

    async def _ask_at(self, gateway: GatewayRole, listener: str, hostname: str, path: str) -> ClientResponse:
        address, loop = self.testbed.address(gateway, listener), asyncio.get_running_loop()
        return await loop.run_in_executor(None, client.ask, self.case.via, address, hostname, path)

    async def _judge_phase(self, phase: _Phase) -> None:
        if phase.expect is not Expected.IGNORED:
            await self._judge_traffic(phase)
        if phase.conditions:
            await self._judge_status(phase.conditions)

    async def _judge_traffic(self, phase: _Phase) -> None:
        key = backend_key(self.case, phase.service, phase.port)
        self._seen = self._changed = _clock(await self.testbed.records(key))
        begun, good, wrong = time.monotonic(), 0, None
        self._connected, may_end = False, not self.settings.adapter.ends_old_connections
        needed = REFUSALS_REQUIRED if phase.expect.refused else PASSES_REQUIRED

        def unproven() -> bool:
            return phase.expect.refused and not self._connected and time.monotonic() - begun < NO_CONNECTION_SECONDS

        while good < needed or unproven():
            if good == 0 and wrong and time.monotonic() - begun > phase.seconds:
                raise wrong
            wrong, last_wrong = await self._try_once(phase, key), wrong
            good = 0 if wrong else good + 1
            wrong = wrong or last_wrong
            if good == 0 and self._over_old and may_end and time.monotonic() - begun > self.patience.pooled:
                may_end = False
                self._notes.append(f"{phase.title}: requests go over connections from before it until the backend ends them")
                await self._serve(phase.port, self._serving(phase))
            if good < needed or unproven():
                await asyncio.sleep(PAUSE)
        took = time.monotonic() - begun
        if wrong and took > 1:
            self._notes.append(f"{phase.title or 'at first'}: after {took:.1f} s; before that {wrong.seen}")

    async def _try_once(self, phase: _Phase, key: str) -> _Failed | None:
        """Sends one request. Returns a fault that may pass with time, or raises one that cannot."""
        answer = await self._ask(path_of(phase.service, phase.port))
        reached, fresh = await self._observe(phase, key)
        self._connected = self._connected or bool(fresh)
        plain = [connection for connection in fresh if connection.get("plaintext")]
        if phase.expect is Expected.PLAINTEXT:
            if answer.backend == key and plain:
                return None
            return _Failed(FaultSeverity.CLOSED, f"no plaintext answer: {answer.shown}{_backend_record(fresh)}")
        if plain:
            first_bytes = bytes.fromhex(plain[0]["first"]).decode("latin-1")
            failed = _Failed(
                FaultSeverity.PLAINTEXT, f"the backend received bytes without TLS, beginning with {first_bytes!r}"
            )
            if phase.after_plaintext:
                return failed
            raise failed
        arrived = answer.backend == key or reached is not None
        self._over_old = bool(phase.title) and reached is not None and reached["at"] <= self._changed
        if phase.expect.refused:
            return self._refusal(phase, answer, arrived, reached)
        if self.case.via is RouteType.MIRROR:
            arrived = reached is not None
        elif answer.backend != key:
            arrived = False
        if not arrived or reached is None:
            return _Failed(FaultSeverity.CLOSED, f"{answer.shown}{_backend_record(fresh)}")
        for expected, observed, name in (
            (phase.sni, reached.get("sni"), "SNI"),
            (phase.alpn, reached.get("alpn"), "ALPN"),
            ("judge gateway" if phase.client else "", reached.get("client"), "client certificate"),
        ):
            if expected and observed != expected:
                return _Failed(FaultSeverity.CLOSED, f"the backend saw {name} {observed!r} instead of {expected!r}")
        return None

    def _refusal(self, phase: _Phase, answer: ClientResponse, arrived: bool, reached: Json | None) -> _Failed | None:
        if arrived:
            over = f" over {reached['tls']}" if reached and reached.get("tls") else ""
            over += " on a connection from before the change" if self._over_old else ""
            return _Failed(FaultSeverity.OPEN, f"a request reached the backend{over}; the client received {answer.shown}")
        if phase.expect is Expected.REFUSED_5XX and (answer.status is None or answer.status < 500):
            return _Failed(FaultSeverity.STATUS, f"the client received {answer.shown} instead of a 5xx")
        if (
            phase.expect is Expected.REFUSED
            and answer.status
            and answer.status < 400
            and self.case.via is not RouteType.MIRROR
        ):
            return _Failed(FaultSeverity.STATUS, f"the client received {answer.shown} instead of an error")
        return None

    async def _observe(self, phase: _Phase, key: str) -> tuple[Json | None, list[Json]]:
        """Returns the connection over which a request arrived since the backend was last read, and the new connections. A
        mirrored request arrives a moment after the answer."""
        deadline = time.monotonic() + (MIRROR_WAIT if self.case.via is RouteType.MIRROR else 0)
        while True:
            records = await self.testbed.records(key)
            reached = next((record for record in reversed(records) if _last(record) > self._seen), None)
            fresh = [record for record in records if record["at"] > self._seen or record is reached]
            plain = any(record.get("plaintext") for record in fresh)
            if reached or plain or time.monotonic() >= deadline:
                self._seen = _clock(records)
                return reached, fresh
            await asyncio.sleep(PAUSE)

    # --- status -------------------------------------------------------------------------------------------------------

    async def _policy(self, name: str) -> Json:
        return await self.testbed.status("BackendTLSPolicy", f"{self.case.slug}-{name}")

    def _require_status(self) -> None:
        if not self.testbed.has_status:
            raise _Unjudged("status is not available; the case is about status")

    async def _claims_support(self) -> bool:
        """Returns whether all policies are in force according to their status."""
        if not self.testbed.has_status:
            return False
        policies = await asyncio.gather(*(self._policy(policy.name) for policy in self.case.policies))
        return all(_is(policy, kind, "True") for policy in policies for kind in ("Accepted", "ResolvedRefs"))

    async def _judge_status(self, conditions: Iterable[ExpectedCondition]) -> None:
        self._require_status()
        for condition in conditions:
            await self._require(functools.partial(self._difference, condition), condition.of)

    async def _require(self, compared: Callable[[Json], str], of: str = "policy") -> None:
        """Waits until `compared` returns no difference in the status of a policy."""
        deadline = time.monotonic() + self.patience.status
        while wrong := compared(await self._object(of)):
            if time.monotonic() > deadline:
                raise _Failed(FaultSeverity.STATUS, wrong)
            await asyncio.sleep(PAUSE)

    async def _object(self, of: str) -> Json:
        names = [policy.name for policy in self.case.policies]
        return await self._policy(names[0] if of == "policy" else of)

    def _difference(self, expected: ExpectedCondition, document: Json) -> str:
        """Returns how the object's conditions differ from the expected one; empty: they do not."""
        reasons = f" with reason {' or '.join(expected.reasons)}" if expected.reasons else ""
        required = f"required: {expected.type}={expected.status}{reasons}"
        entries = _entries(document)
        conditions = [condition for condition in _conditions(entries) if condition["type"] == expected.type]
        if not conditions:
            has = "no ancestor entry" if not entries else f"no condition {expected.type}"
            return f"{required}; {_named(document)} has {has}"
        for condition in conditions:
            if condition["status"] != expected.status or (expected.reasons and condition["reason"] not in expected.reasons):
                return f"{required}; {_named(document)} has {_shown(condition)}"
            if missing := [word for word in expected.mentions if word not in condition.get("message", "")]:
                return f"required: a message that names {missing[0]}; it is {condition.get('message', '')!r}"
        return ""

    async def _check(self, check: StatusCheck) -> None:
        self._require_status()
        match check:
            case StatusCheck.GATEWAY_IS_ANCESTOR | StatusCheck.NOT_ACCEPTED | StatusCheck.DEGRADED:
                await self._require(functools.partial(self._violation, check))
            case StatusCheck.CURRENT_GENERATION:
                await self._require(_outdated)
                await self._edit()
            case StatusCheck.FOREIGN_KEPT:
                await self._check_foreign_kept()
            case StatusCheck.TRANSITION_KEPT:
                await self._check_transition_kept()

    def _violation(self, check: StatusCheck, policy: Json) -> str:
        entries = _entries(policy)
        if check is StatusCheck.GATEWAY_IS_ANCESTOR:
            names = [f"{entry['ancestorRef'].get('kind', 'Gateway')} {entry['ancestorRef']['name']}" for entry in entries]
            gateway = f"Gateway {self.settings.gateway_of(self.case)}"
            return "" if gateway in names else f"ancestors are {', '.join(names) or 'none'}, not {gateway}"
        if check is StatusCheck.DEGRADED:
            if not self.settings.adapter.degraded:
                raise _Unjudged("the adapter knows no such condition")
            types = self.settings.adapter.degraded
            return "" if any(_is(policy, kind, "True") for kind in types) else f"no condition {' or '.join(types)} is True"
        both = all(_is(policy, kind, "True") for kind in ("Accepted", "ResolvedRefs"))
        return f"{_named(policy)} has Accepted=True and ResolvedRefs=True" if entries and both else ""

    async def _check_foreign_kept(self) -> None:
        policy = await self._object("policy")
        condition = {
            "type": "Accepted",
            "status": "True",
            "reason": "Accepted",
            "message": "by another controller",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": policy["metadata"].get("generation", 1),
        }
        entry = {
            "ancestorRef": {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "of-another-controller"},
            "controllerName": FOREIGN_CONTROLLER,
            "conditions": [condition],
        }
        status = {"ancestors": [*policy.get("status", {}).get("ancestors", ()), entry]}
        if not await self.testbed.write_status("BackendTLSPolicy", policy["metadata"]["name"], status):
            raise _Unjudged("the testbed does not let another controller write status")
        after = await self._edit()
        kept = [ancestor for ancestor in after["status"]["ancestors"] if ancestor["controllerName"] == FOREIGN_CONTROLLER]
        if [ancestor["conditions"] for ancestor in kept] != [[condition]]:
            raise _Failed(
                FaultSeverity.STATUS, f"after an edit of the policy the entry is {json.dumps(kept) if kept else 'gone'}"
            )

    async def _check_transition_kept(self) -> None:
        before = {condition["type"]: condition for condition in _conditions(_entries(await self._object("policy")))}
        await asyncio.sleep(1.1)
        after = {condition["type"]: condition for condition in _conditions(_entries(await self._edit()))}
        for kind, old in before.items():
            new = after.get(kind)
            if new and new["status"] == old["status"] and new["lastTransitionTime"] != old["lastTransitionTime"]:
                times = f"{old['lastTransitionTime']} became {new['lastTransitionTime']}"
                raise _Failed(FaultSeverity.STATUS, f"{kind} stayed {new['status']}, and its lastTransitionTime {times}")

    async def _edit(self) -> Json:
        """Edits the policy's hostname, and returns it once its status is of the new generation."""
        policy = dataclasses.replace(self.case.policies[0], hostname=EDITED)
        old = (await self._policy(policy.name))["metadata"].get("generation")
        if old is None:
            raise _Unjudged("objects have no generation here")
        await self.testbed.put(self.case, self.settings.of(self.case, policy))
        deadline = time.monotonic() + self.patience.status
        while True:
            document = await self._policy(policy.name)
            unedited = document["metadata"].get("generation") == old
            wrong = f"its generation is still {old}" if unedited else _outdated(document)
            if not wrong:
                return document
            if time.monotonic() > deadline:
                raise _Failed(FaultSeverity.STATUS, f"the status did not follow an edit of the policy: {wrong}")
            await asyncio.sleep(PAUSE)


def _kind(via: RouteType) -> str:
    return {RouteType.GRPC: "a GRPCRoute", RouteType.TLS: "a TLSRoute", RouteType.TCP: "a TCPRoute"}.get(via, "an HTTPRoute")


def _clock(records: Iterable[Json]) -> int:
    return max((max(record["at"], _last(record)) for record in records), default=0)


def _last(record: Json) -> int:
    return int(max(record["requests"], default=0))


def _backend_record(fresh: Sequence[Json]) -> str:
    """Describes the last connection, which carried no request."""
    if not fresh:
        return "; the backend saw no connection"
    last = fresh[-1]
    return f"; the backend saw SNI {last.get('sni')!r}, {last.get('error') or last.get('tls') or 'no handshake'}"


def _entries(policy: Json) -> list[Json]:
    ancestors: list[Json] = policy.get("status", {}).get("ancestors") or []
    return [entry for entry in ancestors if entry.get("controllerName") != FOREIGN_CONTROLLER]


def _conditions(entries: Iterable[Json]) -> list[dict[str, Any]]:
    return [condition for entry in entries for condition in entry.get("conditions") or ()]


def _outdated(policy: Json) -> str:
    """Returns the first condition of another generation than the policy's; empty: all are of that generation."""
    entries, generation = _entries(policy), policy["metadata"].get("generation")
    if not entries:
        return "there is no ancestor entry"
    old = next((condition for condition in _conditions(entries) if condition.get("observedGeneration") != generation), None)
    return f"{_shown(old)} is of generation {old.get('observedGeneration')}, not {generation}" if old else ""


def _is(policy: Json, kind: str, status: str) -> bool:
    return any(condition["type"] == kind and condition["status"] == status for condition in _conditions(_entries(policy)))


def _named(document: Json) -> str:
    return f"{document.get('kind', 'BackendTLSPolicy')} {document.get('metadata', {}).get('name', '')}".strip()


def _shown(condition: dict[str, Any]) -> str:
    return f"{condition['type']}={condition['status']} with reason {condition.get('reason', '')}"
