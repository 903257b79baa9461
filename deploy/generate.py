"""Writes the Helm chart and the plain manifests (`make docs`), from the same YAML that `lasthop install` fills in."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Final

from deploy import helm_chart
from deploy.dashboard import dashboard
from lasthop.run.infra.kubernetes.installation import (
    GATEWAYS,
    Options,
    crd_documents,
    crds,
    default_image,
    for_namespace,
    rendered,
    sources,
)

VALUES: Final = {
    "namespace": "{{ .Release.Namespace }}",
    "image": "{{ .Values.image }}",
    "replicas": "{{ .Values.replicas }}",
    "watched": '{{ join "," .Values.namespaces }}',
    "webhook": "{{ if .Values.webhook.enabled }}0.0.0.0:9443{{ end }}",
}
INSIDE_RANGE: Final = VALUES | {"namespace": "{{ $.Release.Namespace }}"}


def files() -> dict[str, str]:
    """Returns the content of each file, by its path below `deploy/`."""
    release = version("lasthop")
    image = default_image()
    content = {
        "lasthop.yaml": f"# Made by `lasthop install --dry-run`; edit src/lasthop/infra/kubernetes/installation instead.\n"
        f"{rendered(Options(image))}",
        "chart/Chart.yaml": "apiVersion: v2\nname: lasthop\n"
        "description: A Gateway API implementation that verifies the last hop.\n"
        f"type: application\nversion: {release}\nappVersion: {release}\n",
        "chart/values.yaml": (values := helm_chart.values(image, Options(image).replicas)),
        "chart/values.schema.json": helm_chart.schema(values),
        "chart/templates/NOTES.txt": helm_chart.notes(),
        "chart/templates/05-crds.yaml": helm_chart.crd_hook([document["metadata"]["name"] for document in crd_documents()]),
        "monitoring/dashboard.json": dashboard(),
        "chart/templates/70-monitoring.yaml": _monitoring(),
        "chart/templates/80-webhook.yaml": _webhook(),
    }
    content |= {f"chart/crds/{name}": text for name, text in crds().items()}
    content |= {f"chart/templates/{name}": _template(name, text) for name, text in sources().items()}
    return content


def _webhook() -> str:
    text = (Path(__file__).parent / "webhook.yaml").read_text()
    return f"{{{{- if .Values.webhook.enabled }}}}\n{text}{{{{- end }}}}\n"


def _monitoring() -> str:
    """Returns the PodMonitors and the alert rules. Rules have templates of their own, which are not Helm's."""
    here = Path(__file__).parent / "monitoring"
    rules = (here / "alerts.yaml").read_text().partition("groups:\n")[2]
    indented = "".join(f"  {line}\n" for line in rules.splitlines())
    escaped = re.sub(r"{{.*?}}", lambda match: "{{`" + match[0] + "`}}", indented)
    monitors = (here / "podmonitors.yaml").read_text()
    return f"{{{{- if .Values.monitoring.enabled }}}}\n{monitors}{escaped}{{{{- end }}}}\n"


def _template(name: str, text: str) -> str:
    everywhere = helm_chart.with_values(name, Template(text).substitute(VALUES))
    if name != GATEWAYS:
        return everywhere
    inside = helm_chart.with_values(name, Template(for_namespace(text, "{{ . }}")).substitute(INSIDE_RANGE))
    return (
        "{{- if not .Values.namespaces }}\n"
        + everywhere
        + "{{- end }}\n{{- range .Values.namespaces }}\n---\n"
        + inside
        + "{{- end }}\n"
    )


if __name__ == "__main__":
    for name, content in files().items():
        path = Path(__file__).parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
