"""Random objects of each system, with everything around them that makes an input whole: Services, endpoints, Secrets.

A system's strategy draws its own objects; what is around them is always the same, so that a failing example is short. To add
one: a module `random_<name>.py` with `documents` and `AROUND`, and a line in `WORLDS`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.importers import random_ingress_nginx, random_nginx, random_openshift

Documents = list[dict[str, Any]]


class World(NamedTuple):
    documents: st.SearchStrategy[Documents]
    around: Documents


WORLDS: dict[str, World] = {
    "ingress-nginx": World(random_ingress_nginx.documents(), random_ingress_nginx.AROUND),
    "nginx": World(random_nginx.documents(), random_nginx.AROUND),
    "openshift": World(random_openshift.documents(), random_openshift.AROUND),
}
