"""Computes a pod's status from the states of its containers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from conformance.api import Object
from conformance.network import NODE_IP


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class ContainerState:
    """The state of one container; changed by its own task only."""

    name: str
    image: str
    state: str = "waiting"  # waiting, running, terminated
    reason: str = "ContainerCreating"
    message: str = ""
    started_at: str = ""
    exit_code: int = 0
    ready: bool = False
    restarts: int = 0

    def status(self) -> dict[str, Any]:
        match self.state:
            case "running":
                state: dict[str, Any] = {"startedAt": self.started_at}
            case "terminated":
                reason = "Completed" if self.exit_code == 0 else "Error"
                state = {"exitCode": self.exit_code, "reason": reason, "startedAt": self.started_at}
            case _:
                state = {"reason": self.reason, "message": self.message}
        # The other two are null, since a merge patch would keep them.
        states = {"waiting": None, "running": None, "terminated": None} | {self.state: state}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "state": states,
            "ready": self.ready,
            "started": self.state == "running",
            "restartCount": self.restarts,
        }


@dataclass
class PodState:
    start_time: str
    ip: str = ""
    message: str = ""
    initialized: bool = False


def status(pod: Object, state: PodState, init: list[ContainerState], containers: list[ContainerState]) -> dict[str, Any]:
    unready = [container.name for container in containers if not container.ready]
    old = {condition["type"]: condition for condition in pod.get("status", {}).get("conditions") or ()}
    ready = not unready
    why = (
        {} if ready else {"reason": "ContainersNotReady", "message": f"containers with unready status: [{' '.join(unready)}]"}
    )
    conditions = [
        _condition(old, "PodScheduled", True),
        _condition(old, "Initialized", state.initialized),
        _condition(old, "ContainersReady", ready, why),
        _condition(old, "Ready", ready, why),
    ]
    result: dict[str, Any] = {
        "phase": phase(pod["spec"].get("restartPolicy", "Always"), containers),
        "message": state.message or None,
        "hostIP": NODE_IP,
        "hostIPs": [{"ip": NODE_IP}],
        "startTime": state.start_time,
        "conditions": conditions,
        "initContainerStatuses": [container.status() for container in init],
        "containerStatuses": [container.status() for container in containers],
    }
    if state.ip:
        result |= {"podIP": state.ip, "podIPs": [{"ip": state.ip}]}
    return result


def phase(restart_policy: str, containers: list[ContainerState]) -> str:
    if any(container.state == "waiting" and not container.restarts for container in containers):
        return "Pending"
    if restart_policy != "Always" and all(container.state == "terminated" for container in containers):
        return "Failed" if any(container.exit_code for container in containers) else "Succeeded"
    return "Running"


def _condition(old: dict[str, Any], kind: str, value: bool, why: dict[str, str] | None = None) -> dict[str, Any]:
    text = "True" if value else "False"
    same = kind in old and old[kind]["status"] == text
    return {
        "type": kind,
        "status": text,
        "lastTransitionTime": old[kind]["lastTransitionTime"] if same else now(),
        **(why or {}),
    }
