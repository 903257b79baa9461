"""Measures `lasthop import` with 10,000 Ingresses, as a multiple of parsing the file: `python -m bench.importing`.

On a shared machine the ratio is more reliable than seconds: both parts run one after the other on the same cores.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import click

from tests.proxy.lasthop import EXECUTABLE

GOAL = 16.0
"""The most that an import may cost. It reads, admits, checks and writes three objects for each that is parsed."""
INGRESS = """\
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: web-{number}
  namespace: team-{team}
  annotations:
    nginx.ingress.kubernetes.io/backend-protocol: HTTPS
    nginx.ingress.kubernetes.io/proxy-ssl-secret: team-{team}/ca
    nginx.ingress.kubernetes.io/proxy-ssl-verify: "on"
    nginx.ingress.kubernetes.io/proxy-ssl-name: web-{number}.example
spec:
  ingressClassName: nginx
  tls: [{{hosts: [web-{number}.example.org], secretName: tls-{number}}}]
  rules:
  - host: web-{number}.example.org
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {{service: {{name: web-{number}, port: {{number: 443}}}}}}
"""
PARSING = "import sys, yaml; list(yaml.load_all(open(sys.argv[1], 'rb'), Loader=yaml.CSafeLoader))"


def _cpu(command: list[str]) -> float:
    """Returns the seconds of CPU that a command takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr.decode()[-2000:]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@click.command("bench.importing")
@click.option("--ingresses", default=10_000, show_default=True, type=click.IntRange(100), help="How many.")
def command(ingresses: int) -> None:
    """Measure the import of many Ingresses. Exits with 1 if it costs more than 16 times the parsing."""
    with tempfile.TemporaryDirectory() as root:
        file = Path(root, "in.yaml")
        file.write_text("---\n".join(INGRESS.format(number=number, team=number % 100) for number in range(ingresses)))
        parsing = _cpu([sys.executable, "-c", PARSING, str(file)])
        importing = _cpu([str(EXECUTABLE), "import", "ingress-nginx", str(file), "--to", str(Path(root, "new"))])
    click.echo(
        f"{ingresses} Ingresses: parsing {parsing:.1f} s of CPU, import {importing:.1f} s, {importing / parsing:.1f} times"
    )
    sys.exit(importing / parsing > GOAL)


if __name__ == "__main__":
    command()
