"""Random objects of each system, with everything around them that makes an input whole: Services, endpoints, Secrets.

A system's strategy draws its own objects; what is around them is always the same, so that a failing example is short. To add
one: a module `random_<name>.py` with `documents` and `AROUND`, and a line in `WORLDS`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.importers import (
    random_contour,
    random_emissary,
    random_envoy_gateway,
    random_gke,
    random_ingress_nginx,
    random_istio,
    random_nginx,
    random_openshift,
    random_traefik,
)

Documents = list[dict[str, Any]]


class World(NamedTuple):
    documents: st.SearchStrategy[Documents]
    around: Documents


WORLDS: dict[str, World] = {
    "contour": World(random_contour.documents(), random_contour.AROUND),
    "emissary": World(random_emissary.documents(), random_emissary.AROUND),
    "envoy-gateway": World(random_envoy_gateway.documents(), random_envoy_gateway.AROUND),
    "ingress-nginx": World(random_ingress_nginx.documents(), random_ingress_nginx.AROUND),
    "gke": World(random_gke.documents(), random_gke.AROUND),
    "nginx": World(random_nginx.documents(), random_nginx.AROUND),
    "openshift": World(random_openshift.documents(), random_openshift.AROUND),
    "istio": World(random_istio.documents(), random_istio.AROUND),
    "traefik": World(random_traefik.documents(), random_traefik.AROUND),
}
