"""Makes the Grafana dashboard: `deploy/monitoring/dashboard.json`."""

from __future__ import annotations

import json
from typing import Any, Final

Panel = dict[str, Any]
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
CHOSEN: Final = 'gateway=~"$gateway",namespace=~"$namespace"'
BACKEND: Final = "gateway, namespace, service, port"
NAMED: Final = "{{namespace}}/{{service}}:{{port}}"
RATE: Final = "$__rate_interval"


def _panel(kind: str, title: str, description: str, *targets: tuple[str, str], unit: str = "short", **more: Any) -> Panel:
    custom = {"fillOpacity": 10, "stacking": {"mode": more.pop("stacking", "none")}} if kind == "timeseries" else {}
    instant = kind != "timeseries"
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "custom": custom, **more.pop("defaults", {})}, "overrides": []},
        "options": more.pop("options", {}),
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": expr,
                "legendFormat": legend,
                "datasource": SOURCE,
                "instant": instant,
                "range": not instant,
                **({"format": "table"} if kind == "table" else {}),
            }
            for number, (expr, legend) in enumerate(targets)
        ],
        **more,
    }


def _count(title: str, description: str, expr: str, *, bad: bool = False) -> Panel:
    steps = [{"color": "green" if bad else "blue", "value": None}, *([{"color": "red", "value": 1}] if bad else [])]
    return _panel(
        "stat", title, description, (f"{expr} or vector(0)", ""), defaults={"thresholds": {"mode": "absolute", "steps": steps}}
    )


def _modes(matcher: str) -> str:
    return f"count(max by ({BACKEND}) (lasthop_backend_tls_verification{{{CHOSEN},{matcher}}} == 1))"


def _latency(share: float, metric: str, by: str) -> str:
    return f"histogram_quantile({share}, sum by (le, {by}) (rate({metric}_bucket{{{CHOSEN}}}[{RATE}])))"


def _left(labels: str, metric: str) -> str:
    return f'sort(min by ({labels}) ({metric}{{namespace=~"$namespace"}}) - time())'


def _table(title: str, description: str, expr: str, unit: str) -> Panel:
    hidden = {name: True for name in ("Time", "__name__", "instance", "job")}
    return _panel(
        "table",
        title,
        description,
        (expr, ""),
        unit=unit,
        transformations=[{"id": "organize", "options": {"excludeByName": hidden}}],
    )


def _rows() -> list[tuple[str, list[tuple[int, int, Panel]]]]:
    """Each with its panels: width (of 24), height, panel."""
    requests, route, handshakes = (
        "lasthop_backend_requests_total",
        "lasthop_route_requests_total",
        "lasthop_backend_tls_handshakes_total",
    )
    counts = [
        _count("Verified", "Backends whose certificate is checked as their policy requires.", _modes('mode="Verified"')),
        _count(
            "Failing",
            "Backends to which connections fail, at some endpoints at least.",
            f'count(max by ({BACKEND}) (lasthop_backend_health{{{CHOSEN},health=~"failing|partly failing"}} == 1))',
            bad=True,
        ),
        _count(
            "Weakened",
            "Weaker verification than before, without an acknowledgement.",
            f"count(max by ({BACKEND}) (lasthop_backend_tls_weakened{{{CHOSEN}}} == 1))",
            bad=True,
        ),
        _count("Waived", "A VerificationWaiver is in effect.", _modes('mode=~"Waived.+"'), bad=True),
        _count("Plaintext", "No policy names the port.", _modes('mode="Plaintext"'), bad=True),
        _count(
            "Failing closed",
            "Refused, because the policy cannot be fulfilled or is not permitted.",
            _modes('mode="FailingClosed"'),
            bad=True,
        ),
    ]
    traffic = [
        _panel(
            "timeseries",
            "Requests by class",
            "All selected backends; connections for streams.",
            (f"sum by (code) (rate({requests}{{{CHOSEN}}}[{RATE}]))", "{{code}}"),
            unit="reqps",
            stacking="normal",
        ),
        _panel(
            "timeseries",
            "5xx by backend",
            "Answers of class 5xx, the backend's own or for want of one.",
            (f'sum by ({BACKEND}) (rate({requests}{{{CHOSEN},code="5xx"}}[{RATE}])) > 0', NAMED),
            unit="reqps",
        ),
        _panel(
            "timeseries",
            "Latency",
            "All selected backends.",
            *(
                (_latency(share, "lasthop_backend_request_duration_seconds", "gateway"), f"{name} {{{{gateway}}}}")
                for share, name in ((0.5, "p50"), (0.99, "p99"))
            ),
            unit="s",
        ),
        _panel(
            "timeseries",
            "Requests by route",
            "The busiest ten.",
            (
                f"topk(10, sum by (gateway, kind, namespace, route) (rate({route}{{{CHOSEN}}}[{RATE}])))",
                "{{kind}} {{namespace}}/{{route}}",
            ),
            unit="reqps",
        ),
        _panel(
            "timeseries",
            "p99 by route",
            "The slowest ten.",
            (
                f"topk(10, {_latency(0.99, 'lasthop_route_request_duration_seconds', 'gateway, kind, namespace, route')})",
                "{{kind}} {{namespace}}/{{route}}",
            ),
            unit="s",
        ),
        _panel(
            "timeseries",
            "Under way",
            "Requests, or streams, by backend.",
            (f"topk(10, sum by ({BACKEND}) (lasthop_backend_requests_active{{{CHOSEN}}}))", NAMED),
        ),
    ]
    tls = [
        _panel(
            "timeseries",
            "Handshakes by outcome",
            "With backends; success, or why not.",
            (f"sum by (outcome) (rate({handshakes}{{{CHOSEN}}}[{RATE}]))", "{{outcome}}"),
            unit="ops",
            stacking="normal",
        ),
        _panel(
            "timeseries",
            "Failed handshakes by backend",
            "",
            (
                f'sum by ({BACKEND}, outcome) (rate({handshakes}{{{CHOSEN},outcome!="success"}}[{RATE}])) > 0',
                f"{NAMED} {{{{outcome}}}}",
            ),
            unit="ops",
        ),
        _panel(
            "timeseries",
            "Connections that fail",
            "Handshakes included.",
            (f"sum by ({BACKEND}) (rate(lasthop_backend_connect_failures_total{{{CHOSEN}}}[{RATE}])) > 0", NAMED),
            unit="ops",
        ),
        _table(
            "Certificates: time left",
            "Of listeners, client certificates, CAs and pins; the first to end first.",
            _left("role, kind, namespace, name, subject", "lasthop_certificate_expiry_timestamp_seconds"),
            "s",
        ),
        _table(
            "Backends' own certificates: time left",
            "As they were shown to the proxies.",
            f"sort(min by ({BACKEND}) (lasthop_backend_certificate_expiry_timestamp_seconds{{{CHOSEN}}}) - time())",
            "s",
        ),
        _table(
            "Waivers: time left",
            "",
            _left("namespace, waiver", "lasthop_waiver_expiry_timestamp_seconds"),
            "s",
        ),
    ]
    control = [
        _panel(
            "timeseries",
            "Findings",
            "Problems of the objects.",
            ("max by (severity, reason) (lasthop_findings) > 0", "{{severity}} {{reason}}"),
        ),
        _panel(
            "timeseries",
            "Proxies",
            "Connected to a replica, and reporting observations.",
            ('sum by (gateway) (lasthop_xds_clients{gateway=~"$gateway"})', "{{gateway}} connected"),
            ('max by (gateway) (lasthop_proxies_reporting{gateway=~"$gateway"})', "{{gateway}} reporting"),
        ),
        _panel(
            "timeseries",
            "Time to programmed",
            "From a change until the proxies have confirmed it.",
            (f"histogram_quantile(0.99, sum by (le) (rate(lasthop_time_to_programmed_seconds_bucket[{RATE}])))", "p99"),
            unit="s",
        ),
        _panel(
            "timeseries",
            "Memory",
            "Resident, of each Lasthop.",
            (
                "process_resident_memory_bytes * on (instance) group_left (version) lasthop_build_info",
                "{{instance}} {{version}}",
            ),
            unit="bytes",
        ),
    ]
    return [
        ("Verification", [(4, 4, panel) for panel in counts]),
        ("Traffic", [(8, 8, panel) for panel in traffic]),
        ("TLS", [(8, 8, panel) for panel in tls]),
        ("Lasthop", [(6, 7, panel) for panel in control]),
    ]


def _variable(name: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {name})"
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
        "refresh": 2,
        "sort": 1,
    }


def dashboard() -> str:
    panels: list[Panel] = []
    top = 0
    for title, row in _rows():
        panels.append(
            {"type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []}
        )
        top, left = top + 1, 0
        for width, height, panel in row:
            if left + width > 24:
                top, left = top + height, 0
            panels.append({**panel, "gridPos": {"x": left, "y": top, "w": width, "h": height}})
            left += width
        top += row[-1][1]
    source = {"name": "datasource", "type": "datasource", "query": "prometheus", "current": {}}
    made = {
        "title": "Lasthop",
        "uid": "lasthop",
        "description": "Traffic of gateways on the last hop, and the verification of backends.",
        "tags": ["gateway-api", "lasthop"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [source, *(_variable(name, "lasthop_backend_tls_verification") for name in ("gateway", "namespace"))]
        },
        "panels": [{"id": number, **panel} for number, panel in enumerate(panels, 1)],
    }
    return json.dumps(made, indent=1) + "\n"
