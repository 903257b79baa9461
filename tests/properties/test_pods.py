"""The endpoints of an XBackend in a cluster, over random Pods that come, change and go, against a naive oracle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.core import Pod
from lasthop.base.api.meta import Key, Object
from lasthop.engine.engine import Engine
from lasthop.engine.plan.upstream import EndpointAddress
from lasthop.engine.resolve.backends.backends import endpoints
from lasthop.engine.resolve.settings import IN_CLUSTER
from tests.world import key, keyed, mk, mk_pod

LABELS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), max_size=2)
PODS = st.builds(
    mk_pod,
    st.sampled_from(["a/p0", "a/p1", "a/p2", "b/p0"]),
    st.sampled_from(["10.0.0.1", "10.0.0.2", "fd00::1", ""]),
    LABELS,
    ready=st.sampled_from([True, True, False]),
    phase=st.sampled_from(["Running", "Running", "Failed"]),
    leaving=st.sampled_from([False, False, True]),
)
SELECTORS = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["x", "y"]), min_size=1, max_size=2)
BACKEND = Key("XBackend", "a", "x")


def xbackend(labels: dict[str, str]) -> Object:
    spec = {"type": "EndpointSelector", "port": {"number": 8443}, "endpointSelector": {"matchLabels": labels}}
    return mk("XBackend", "a/x", spec=spec)


def oracle(pods: dict[Key, Object], selector: dict[str, str]) -> list[EndpointAddress]:
    addresses = set()
    for pod in pods.values():
        assert isinstance(pod, Pod)
        ready = [condition for condition in pod.status.conditions if condition.type == "Ready" and condition.status == "True"]
        gone = pod.metadata.deletion_timestamp or pod.status.phase == "Failed" or pod.metadata.namespace != "a"
        if ready and not gone and pod.status.pod_ips and selector.items() <= dict(pod.metadata.labels).items():
            addresses.add(EndpointAddress(pod.status.pod_ips[0].ip, 8443))
    return sorted(addresses)


@given(st.lists(st.tuples(PODS, st.booleans(), SELECTORS), max_size=12))
def test_it_is_the_ready_pods_of_its_namespace_that_have_all_its_labels(
    edits: list[tuple[Object, bool, dict[str, str]]],
) -> None:
    engine = Engine(IN_CLUSTER)
    pods: dict[Key, Object] = {}
    for pod, gone, selector in edits:
        pods.pop(key(pod), None)
        pods |= {} if gone else {key(pod): pod}
        engine.apply({key(pod): None if gone else pod, **keyed(xbackend(selector))})
        engine.settle()
        assert list(endpoints(engine.graph, BACKEND, 8443, "TCP").endpoints) == oracle(pods, selector)
