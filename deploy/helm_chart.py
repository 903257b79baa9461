"""Makes the Helm chart out of the manifests of `lasthop install`: the same text, with values where users differ.

A value is put in by replacing a piece of the manifest, which is also its default, or by adding a block that is empty unless
the value is set. So with default values the chart renders what `lasthop install` applies.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

POD_FIELDS: Final = ("imagePullSecrets", "nodeSelector", "tolerations", "affinity")

LABELS: Final = "{{ range $name, $value := $.Values.labels }}, {{ $name }}: {{ $value | quote }}{{ end }}"
POD_LABELS: Final = LABELS + LABELS.replace("$.Values.labels", "$.Values.podLabels")
BLOCK_LABELS: Final = "{{- range $name, $value := $.Values.labels }}\n    {{ $name }}: {{ $value | quote }}\n{{- end }}\n"
RESOURCES: Final = "        resources:\n          requests: {cpu: 100m, memory: 256Mi}\n"
SPREAD: Final = """\
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: kubernetes.io/hostname
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {app.kubernetes.io/name: lasthop-controller}
"""
BUDGET: Final = "spec:\n  maxUnavailable: 1\n"
BUDGET_VALUE: Final = """\
spec:
{{- if .Values.podDisruptionBudget }}
  {{- toYaml .Values.podDisruptionBudget | nindent 2 }}
{{- else }}
  maxUnavailable: 1
{{- end }}
"""
"""The default is not in values.yaml: helm would merge it with a `minAvailable`, and there may be only one of them."""
SERVICE_SPEC: Final = "spec:\n  selector: {app.kubernetes.io/name: lasthop-controller}\n"
CLASS_NAME: Final = "  name: lasthop\n"
CLASS_SPEC: Final = "  controllerName: lasthop.dev/gateway-controller\n"
PROFILE: Final = """\
{{- with .Values.gatewayClass.profile }}
{{- if and $.Values.namespaces (not (has $.Release.Namespace $.Values.namespaces)) }}
{{- fail (printf "gatewayClass.profile is an object in %s, which is not watched: add it to namespaces" $.Release.Namespace) }}
{{- end }}
---
# The settings of all Gateways of the class.
apiVersion: lasthop.dev/v1alpha1
kind: GatewayProfile
metadata:
  name: {{ $.Values.gatewayClass.name }}
  namespace: {{ $.Release.Namespace }}
  labels: {app.kubernetes.io/part-of: lasthopLABELS}
spec: {{- toYaml . | nindent 2 }}
{{- end }}
"""
PARAMETERS: Final = """\
{{- if .Values.gatewayClass.profile }}
  parametersRef:
    group: lasthop.dev
    kind: GatewayProfile
    name: {{ .Values.gatewayClass.name }}
    namespace: {{ .Release.Namespace }}
{{- end }}
"""


def with_values(name: str, text: str) -> str:
    """Returns a template of the chart, from a manifest whose simple values are put in already."""
    text = re.sub(r"^  labels: \{(.*)\}$", rf"  labels: {{\1{LABELS}}}", text, flags=re.MULTILINE)
    text = re.sub(r"^      labels: \{(.*)\}$", rf"      labels: {{\1{POD_LABELS}}}", text, flags=re.MULTILINE)
    text = text.replace("    app.kubernetes.io/part-of: lasthop\n", "    app.kubernetes.io/part-of: lasthop\n" + BLOCK_LABELS)
    match name:
        case "40-controller.yaml":
            text = _replaced(text, RESOURCES, "        resources: {{- toYaml .Values.resources | nindent 10 }}\n")
            spread = "      topologySpreadConstraints: {{- toYaml .Values.topologySpreadConstraints | nindent 6 }}\n"
            text = _replaced(text, SPREAD, spread)
            text = _replaced(text, BUDGET, BUDGET_VALUE)
            text = _replaced(text, "    spec:\n", _optional("podAnnotations", "annotations", 6) + "    spec:\n")
            anchor = "      enableServiceLinks: false\n"
            scheduling = "".join(_optional(field, field, 6) for field in POD_FIELDS)
            priority = "{{- with .Values.priorityClassName }}\n      priorityClassName: {{ . }}\n{{- end }}\n"
            return _replaced(text, anchor, anchor + scheduling + priority)
        case "30-service.yaml":
            return _replaced(text, SERVICE_SPEC, _optional("service.annotations", "annotations", 2) + SERVICE_SPEC)
        case "60-gatewayclass.yaml":
            text = _replaced(text, CLASS_NAME, "  name: {{ .Values.gatewayClass.name }}\n")
            text = _replaced(text, CLASS_SPEC, CLASS_SPEC + PARAMETERS)
            return f"{{{{- if .Values.gatewayClass.create }}}}\n{text}{PROFILE.replace('LABELS', LABELS)}{{{{- end }}}}\n"
    return text


def _optional(value: str, field: str, indent: int) -> str:
    space = " " * indent
    return f"{{{{- with .Values.{value} }}}}\n{space}{field}: {{{{- toYaml . | nindent {indent + 2} }}}}\n{{{{- end }}}}\n"


def _replaced(text: str, old: str, new: str) -> str:
    if text.count(old) != 1:
        raise ValueError(f"the manifest has {text.count(old)} times, and not once:\n{old}")
    return text.replace(old, new)


def values(image: str, replicas: int) -> str:
    """Returns values.yaml, which also documents the values for users."""
    resources = yaml.safe_dump(yaml.safe_load(RESOURCES)["resources"])
    spread = yaml.safe_dump(yaml.safe_load(SPREAD)["topologySpreadConstraints"], sort_keys=False)
    return (
        _text("values.yaml")
        .replace("IMAGE", image)
        .replace("REPLICAS", str(replicas))
        .replace("RESOURCES\n", textwrap.indent(resources, "  "))
        .replace("SPREAD\n", spread)
    )


def schema(texts: str) -> str:
    """Returns values.schema.json: helm refuses a value that does not exist or has another type."""
    properties = {name: _schema(name, value) for name, value in yaml.safe_load(texts).items()}
    # helm itself adds `global` for parent charts.
    known = _object({**properties, "global": {"type": "object"}})
    document = {"$schema": "http://json-schema.org/draft-07/schema#", **known}
    return json.dumps(document, indent=2) + "\n"


FREE: Final = ("resources", "podDisruptionBudget", "profile")
"""Objects whose fields are Kubernetes' or a GatewayProfile's: the API server knows them."""

WORDS: Final = {"failurePolicy": ("Ignore", "Fail")}
"""Values that are one of some words: the API server would refuse another one when the rest is installed already."""


def _schema(name: str, value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 1}
        case str() if name in WORDS:
            return {"enum": list(WORDS[name])}
        case str():
            return {"type": "string", **({"minLength": 1} if value else {})}
        case list() if name == "namespaces":
            return {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
            }  # `--set namespaces={}` is one without a name
        case list():
            return {"type": "array"}
        case dict() if value and name not in FREE:
            return _object({key: _schema(key, item) for key, item in value.items()})
    return {"type": "object"}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}


HOOK: Final = (
    'helm.sh/hook: "pre-install,pre-upgrade", helm.sh/hook-weight: "-5", '
    'helm.sh/hook-delete-policy: "before-hook-creation,hook-succeeded"'
)


def crd_hook(names: list[str]) -> str:
    text = _text("05-crds.yaml").replace("JOB_HOOK", HOOK.replace('"-5"', '"-4"')).replace("HOOK", HOOK)
    fields = "".join(_optional(field, field, 6) for field in POD_FIELDS)
    return text.replace("NAMES", ", ".join(names)).replace("PODFIELDS", fields)


def notes() -> str:
    """Returns the text that helm prints after an install or upgrade."""
    return _text("NOTES.txt")


def _text(name: str) -> str:
    return (Path(__file__).parent / "helm" / name).read_text()
