"""The manifests of a Gateway: names, labels, rights, ports and addresses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lasthop.base.api import gateway as api
from lasthop.base.api.meta import Key, ObjectMeta, PassedOn, StringMap
from lasthop.base.api.profiles import (
    Autoscaling,
    DisruptionBudget,
    PodSettings,
    ProxySettings,
    Resources,
    SecretName,
    ServiceSettings,
)
from lasthop.engine.plan import listener as plan
from lasthop.engine.plan.condition import failed, true
from lasthop.engine.plan.infrastructure import RequestedAddresses
from lasthop.engine.plan.problem import Problem
from lasthop.engine.plan.reasons import ACCEPTED, INVALID
from lasthop.run.infra.kubernetes.desired import DesiredGateway, desired_gateway
from lasthop.run.infra.kubernetes.manifests import manifests, secret
from lasthop.run.infra.kubernetes.names import label_value, object_name, selector
from lasthop.run.infra.kubernetes.services import read_back
from tests.unit.infra.kubernetes.cluster import SITE, gateway

LONGEST = "gateway-name-maximum-length-" + "a" * 225
DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def made(kind: str, of: DesiredGateway) -> dict[str, Any]:
    return next(document for document in manifests(of, SITE) if document["kind"] == kind)


def service(of: DesiredGateway) -> dict[str, Any]:
    spec: dict[str, Any] = made("Service", of)["spec"]
    return spec


def pod(of: DesiredGateway) -> dict[str, Any]:
    template: dict[str, Any] = made("Deployment", of)["spec"]["template"]
    return template


def test_a_gateway_gets_four_objects_in_its_own_namespace_that_go_when_it_goes() -> None:
    documents = manifests(gateway(), SITE)
    assert [d["kind"] for d in documents] == ["ServiceAccount", "Service", "PodDisruptionBudget", "Deployment"]
    for document in documents:
        assert (document["metadata"]["namespace"], document["metadata"]["name"]) == ("shop", "lasthop-web")
        assert document["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "name": "web",
                "uid": "uid-of-web",
                "controller": True,
            }
        ]


def test_infrastructure_labels_and_annotations_are_on_everything() -> None:
    of = gateway(labels={"key2": "value2"}, annotations={"key1": "value1"})
    for metadata in (
        *(d["metadata"] for d in manifests(of, SITE)),
        secret(of, {})["metadata"],
        pod(of)["metadata"],
    ):
        assert metadata["labels"]["key2"] == "value2"
        assert metadata["labels"]["gateway.networking.k8s.io/gateway-name"] == "web"
        assert metadata["annotations"]["key1"] == "value1"


def test_an_infrastructure_label_cannot_take_a_pod_out_of_its_gateway() -> None:
    of = gateway(labels={"gateway.networking.k8s.io/gateway-name": "other", "app.kubernetes.io/name": "other"})
    labels = made("Deployment", of)["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod(of)["metadata"]["labels"].items()
    assert service(of)["selector"] == labels
    assert made("PodDisruptionBudget", of)["spec"]["selector"]["matchLabels"] == labels
    assert labels["gateway.networking.k8s.io/gateway-name"] == "web"


@pytest.mark.parametrize("name", ["web", "a", LONGEST, "a.b.c", "x" * 54 + ".y", "a" * 55, "a" * 56, "0", "-".join("ab" * 40)])
def test_every_name_and_label_is_valid_however_a_gateway_is_called(name: str) -> None:
    of = gateway(name, addresses=("192.0.2.1",))
    for document in (*manifests(of, SITE), secret(of, {})):
        assert DNS_LABEL.fullmatch(document["metadata"]["name"]), document["metadata"]["name"]
        for value in document["metadata"]["labels"].values():
            assert LABEL_VALUE.fullmatch(value), value


def test_gateways_with_like_names_share_nothing() -> None:
    names = [LONGEST, LONGEST[:-1] + "b", "a.b", "a-b", "a.b.c", "a-b.c"]
    assert len({object_name(name) for name in names}) == len({label_value(name) for name in names}) == len(names)


def test_the_pod_has_no_rights_at_all() -> None:
    spec = pod(gateway())["spec"]
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
        "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
    }
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
    }
    assert spec["automountServiceAccountToken"] is False
    assert made("ServiceAccount", gateway())["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


def test_the_pod_cannot_fill_the_disk_of_its_node() -> None:
    volumes = {volume["name"]: volume for volume in pod(gateway())["spec"]["volumes"]}
    assert volumes["run"]["emptyDir"] == {"sizeLimit": "256Mi"}


def test_the_pod_runs_lasthop_proxy_with_all_that_it_needs_to_know() -> None:
    spec = pod(gateway())["spec"]
    (container,) = spec["containers"]
    assert (container["image"], container["command"]) == ("ghcr.io/lasthop/lasthop:1", ["lasthop", "proxy"])
    assert {variable["name"]: variable["value"] for variable in container["env"]} == {
        "LASTHOP_GATEWAY": "shop/web",
        "LASTHOP_XDS_ADDRESS": "lasthop-xds.lasthop-system.svc:18000",
        "LASTHOP_XDS_SERVER_NAME": "lasthop-xds.lasthop-system.svc",
        "LASTHOP_XDS_CERTIFICATES": "/var/run/lasthop/xds",
        "LASTHOP_RUN_DIR": "/run/lasthop",
        "LASTHOP_READY_PORT": "15021",
        "LASTHOP_DRAIN_SECONDS": "30",
    }
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": 15021}
    assert spec["volumes"][1] == {"name": "xds", "secret": {"secretName": "lasthop-web-xds"}}
    assert spec["terminationGracePeriodSeconds"] == 40
    assert [spread["whenUnsatisfiable"] for spread in spec["topologySpreadConstraints"]] == ["ScheduleAnyway"] * 2


def test_a_new_listener_does_not_restart_the_pods() -> None:
    assert pod(gateway(ports=((80, "TCP"),))) == pod(gateway(ports=((80, "TCP"), (8443, "TCP"))))


@pytest.mark.parametrize("port", [(15021, "TCP"), (15021, "UDP")])
def test_not_even_the_port_of_the_readiness_probe_does(port: tuple[int, str]) -> None:
    assert pod(gateway(ports=((80, "TCP"),))) == pod(gateway(ports=((80, "TCP"), port)))


def test_the_profile_is_heard() -> None:
    settings = ProxySettings(
        replicas=3,
        resources=Resources(StringMap.of({"cpu": "500m"}), StringMap([("cpu", 2), ("memory", "1Gi")])),  # type: ignore[list-item]
        service=ServiceSettings("LoadBalancer", "Local", "example.com/internal"),
        drain_seconds=120,
        image="registry.local/lasthop:2",
    )
    of = gateway(settings=settings)
    container = pod(of)["spec"]["containers"][0]
    assert made("Deployment", of)["spec"]["replicas"] == 3
    assert container["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert container["image"] == "registry.local/lasthop:2"
    assert pod(of)["spec"]["terminationGracePeriodSeconds"] == 130
    assert service(of)["externalTrafficPolicy"] == "Local"
    assert service(of)["loadBalancerClass"] == "example.com/internal"


def test_pods_run_where_the_profile_says_and_carry_what_it_says() -> None:
    toleration, affinity = {"key": "edge", "operator": "Exists"}, {"podAntiAffinity": {"weight": 1}}
    settings = ProxySettings(
        pod=PodSettings(
            labels=StringMap.of({"tier": "edge", "team": "net", "app.kubernetes.io/name": "mine"}),
            annotations=StringMap.of({"example.com/note": "class"}),
            node_selector=StringMap.of({"kubernetes.io/os": "linux"}),
            tolerations=(PassedOn.of(toleration),),
            affinity=PassedOn.of(affinity),
            topology_spread_constraints=(PassedOn.of({"maxSkew": 2, "topologyKey": "rack"}),),
            priority_class_name="edge-critical",
            image_pull_secrets=(SecretName("registry"),),
        ),
        service=ServiceSettings(annotations=StringMap.of({"example.com/lb": "internal", "example.com/note": "class"})),
    )
    of = gateway(settings=settings, labels={"team": "shop"}, annotations={"example.com/note": "gateway"})
    spec, metadata = pod(of)["spec"], pod(of)["metadata"]
    assert metadata["labels"].items() >= {"tier": "edge", "team": "shop", "app.kubernetes.io/name": "lasthop-proxy"}.items()
    assert metadata["annotations"]["example.com/note"] == "gateway"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert (spec["tolerations"], spec["affinity"]) == ([toleration], affinity)
    selected = {"matchLabels": selector("web")}
    assert spec["topologySpreadConstraints"] == [{"maxSkew": 2, "topologyKey": "rack", "labelSelector": selected}]
    assert (spec["priorityClassName"], spec["imagePullSecrets"]) == ("edge-critical", [{"name": "registry"}])
    annotations = made("Service", of)["metadata"]["annotations"]
    assert (annotations["example.com/lb"], annotations["example.com/note"]) == ("internal", "gateway")
    assert "example.com/lb" not in made("Deployment", of)["metadata"]["annotations"]


def test_an_autoscaler_has_the_number_of_replicas() -> None:
    of = gateway(settings=ProxySettings(replicas=3, autoscaling=Autoscaling(max_replicas=9, min_replicas=2)))
    assert "replicas" not in made("Deployment", of)["spec"]
    spec = made("HorizontalPodAutoscaler", of)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "lasthop-web"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 9)
    assert spec["metrics"][0]["resource"]["target"]["averageUtilization"] == 80
    assert "HorizontalPodAutoscaler" not in [document["kind"] for document in manifests(gateway(), SITE)]


def test_a_disruption_budget_has_what_the_profile_says_and_nothing_beside_it() -> None:
    of = gateway(settings=ProxySettings(disruption_budget=DisruptionBudget(min_available="50%")))
    assert made("PodDisruptionBudget", of)["spec"].keys() == {"minAvailable", "selector"}
    assert made("PodDisruptionBudget", gateway())["spec"]["maxUnavailable"] == 1


def test_without_a_number_of_replicas_an_autoscaler_may_have_its_say() -> None:
    assert "replicas" not in made("Deployment", gateway())["spec"]


def test_the_service_has_the_listeners_ports_and_both_families_where_there_are_two() -> None:
    spec = service(gateway(ports=((80, "TCP"), (5300, "UDP"))))
    assert spec["type"] == "LoadBalancer"
    assert spec["ipFamilyPolicy"] == "PreferDualStack"
    assert spec["ports"] == [
        {"name": "tcp-80", "protocol": "TCP", "port": 80, "targetPort": 80},
        {"name": "udp-5300", "protocol": "UDP", "port": 5300, "targetPort": 5300},
    ]


def test_a_gateway_without_a_port_has_no_service_since_there_is_none_without() -> None:
    assert [d["kind"] for d in manifests(gateway(ports=()), SITE)] == ["ServiceAccount", "PodDisruptionBudget", "Deployment"]


def test_a_cluster_ip_service_has_nothing_of_a_load_balancers() -> None:
    of = gateway(settings=ProxySettings(service=ServiceSettings("ClusterIP", "Local", "x")))
    assert not {"externalTrafficPolicy", "loadBalancerClass", "loadBalancerIP"} & service(of).keys()


def test_each_requested_address_has_its_own_service() -> None:
    of = gateway(addresses=("192.0.2.7", "2001:db8::7"))
    specs = [d["spec"] for d in manifests(of, SITE) if d["kind"] == "Service"]
    assert [(s["loadBalancerIP"], s["ipFamilies"], s["ipFamilyPolicy"]) for s in specs] == [
        ("192.0.2.7", ["IPv4"], "SingleStack"),
        ("2001:db8::7", ["IPv6"], "SingleStack"),
    ]


def balanced(*ingress: dict[str, str]) -> dict[str, Any]:
    return {"spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": list(ingress)}}}


def test_addresses_are_read_back_from_the_load_balancer() -> None:
    provided = read_back(gateway(), {"lasthop-web": balanced({"ip": "192.0.2.1"}, {"hostname": "lb.example.com"})})
    assert provided.addresses == (("IPAddress", "192.0.2.1"), ("Hostname", "lb.example.com"))
    assert read_back(gateway(), {"lasthop-web": balanced()}).addresses == ()
    assert read_back(gateway(), {}).addresses == ()


def test_addresses_of_a_cluster_ip_service_are_its_own() -> None:
    of = gateway(settings=ProxySettings(service=ServiceSettings("ClusterIP")))
    provided = read_back(of, {"lasthop-web": {"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.9", "fd00::9"]}}})
    assert provided.addresses == (("IPAddress", "10.96.0.9"), ("IPAddress", "fd00::9"))


def test_an_address_that_was_requested_and_not_assigned_is_missing() -> None:
    of = gateway(addresses=("203.0.113.1", "192.0.2.7"))
    refused, given = (d["metadata"]["name"] for d in manifests(of, SITE) if d["kind"] == "Service")
    provided = read_back(of, {refused: balanced({"ip": "192.0.2.99"}), given: balanced({"ip": "192.0.2.7"})})
    assert provided.addresses == (("IPAddress", "192.0.2.7"),)
    assert provided.missing == ("203.0.113.1",)


def listener(port: int, protocol: str, served: bool = True) -> plan.ListenerPlan:
    return plan.ListenerPlan(Key("Gateway", "shop", "web"), f"l{port}", port, protocol, "", str(port), served=served)


def test_what_is_wanted_follows_from_the_gateway_and_its_plan() -> None:
    spec = api.GatewaySpec(
        "lasthop",
        addresses=(api.GatewayAddress(value="2001:DB8:0::1"), api.GatewayAddress(value="")),
        infrastructure=api.GatewayInfrastructure(labels=StringMap.of({"a": "b"})),
    )
    obj = api.Gateway(ObjectMeta("web", "shop", "uid-1"), spec)
    listeners = (listener(443, "HTTPS", served=False), listener(80, "HTTP"), listener(80, "HTTPS"), listener(1111, "INVALID"))
    requested = RequestedAddresses(outside=("2001:db8::1", ""))
    planned = plan.GatewayPlan(Key("Gateway", "shop", "web"), (), listeners, true(ACCEPTED), requested)
    desired = desired_gateway(obj, planned, ProxySettings())
    assert desired.ports == ((80, "TCP"), (443, "TCP")), "also that of a listener which is not served just now"
    assert desired.addresses == ("2001:db8::1",)
    assert (desired.uid, desired.labels, desired.hold) == ("uid-1", StringMap.of({"a": "b"}), False)


@pytest.mark.parametrize(
    ("requested", "wanted"),
    [
        (RequestedAddresses(), ((), True)),
        (RequestedAddresses(inside=("",)), (("",), False)),
        (RequestedAddresses(outside=("",), inside=("10.96.0.7",)), (("10.96.0.7",), True)),
        (RequestedAddresses(unassigned=("x",)), ((), True)),
    ],
)
def test_what_is_wanted_for_the_cluster_alone_needs_no_other_service(
    requested: RequestedAddresses, wanted: tuple[tuple[str, ...], bool]
) -> None:
    planned = plan.GatewayPlan(Key("Gateway", "shop", "web"), (), (listener(80, "HTTP"),), true(ACCEPTED), requested)
    desired = desired_gateway(api.Gateway(ObjectMeta("web", "shop", "uid-1")), planned, ProxySettings())
    assert (desired.inside, desired.outside) == wanted


def test_addresses_for_the_cluster_are_those_of_services_of_their_own() -> None:
    of = gateway(inside=("", "10.96.0.7"))
    specs = {d["metadata"]["name"]: d["spec"] for d in manifests(of, SITE) if d["kind"] == "Service"}
    balancer, anyone, exact = specs
    assert (balancer, anyone) == ("lasthop-web", "lasthop-web-cluster")
    assert [spec["type"] for spec in specs.values()] == ["LoadBalancer", "ClusterIP", "ClusterIP"]
    assert specs[exact]["clusterIP"] == "10.96.0.7" and "clusterIP" not in specs[anyone]
    given = {
        balancer: balanced({"ip": "192.0.2.1"}),
        anyone: {"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.9"]}},
        exact: {"spec": {"type": "ClusterIP", "clusterIPs": ["10.96.0.8"]}},
    }
    provided = read_back(of, given)
    assert provided.addresses == (("IPAddress", "192.0.2.1"), ("IPAddress", "10.96.0.9"))
    assert (provided.inside, provided.missing) == (("10.96.0.9",), ("10.96.0.7",))


def test_a_gateway_for_the_cluster_alone_has_no_load_balancer() -> None:
    of = gateway(inside=("",), outside=False)
    specs = [d["spec"] for d in manifests(of, SITE) if d["kind"] == "Service"]
    assert [spec["type"] for spec in specs] == ["ClusterIP"]
    assert not {"externalTrafficPolicy", "loadBalancerClass", "loadBalancerIP"} & specs[0].keys()
    provided = read_back(of, {"lasthop-web": balanced({"ip": "192.0.2.1"})})
    assert provided.addresses == () and provided.inside == ()


def test_a_gateway_that_is_not_accepted_is_held_as_it_is() -> None:
    obj = api.Gateway(ObjectMeta("web", "shop", "uid-1"))
    unaccepted = plan.GatewayPlan(Key("Gateway", "shop", "web"), (), (), failed(ACCEPTED, Problem(INVALID, "no")))
    assert desired_gateway(obj, unaccepted, ProxySettings()).hold
