"""What is kept from Envoy after a refusal, and how the innocent get out again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lasthop.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Resource
from lasthop.xds.cache import Cache
from lasthop.xds.quarantine import Part, Quarantine


def table(*parts: str, name: str = "http", type_url: str = ROUTES) -> Resource:
    """A route table of virtual hosts, each written `id=hash`."""
    return Resource(type_url, name, " ".join(parts).encode(), "-".join(parts), dict(p.split("=") for p in parts))


def cluster(text: str) -> Resource:
    return table(text, name=text.split("=")[0], type_url=CLUSTER)


def named(*resources: Resource) -> dict[str, Resource]:
    return {r.name: r for r in resources}


def vhost(text: str, type_url: str = ROUTES) -> Part:
    return Part(type_url, *text.split("="))


def test_the_one_part_that_changed_since_the_last_ack_is_convicted() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1", "b=1")))
    assert quarantine.nacked(ROUTES, named(table("a=1", "b=2")), "missing ): (unclosed")
    assert quarantine.quarantined == quarantine.convicted == {vhost("b=2")}
    assert quarantine.detail(vhost("b=2")) == "missing ): (unclosed"


def test_of_several_all_are_quarantined_then_half_is_released() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2"), vhost("d=2"), vhost("e=2")}
    assert not quarantine.convicted

    assert quarantine.acked(ROUTES, named(table("a=1")))  # the quarantine has arrived: d and e go on trial
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2")}
    assert quarantine.acked(ROUTES, named(table("a=1", "d=2", "e=2")))  # cleared; b and c go on trial
    assert quarantine.quarantined == frozenset()
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1", "d=2", "e=2")))
    assert quarantine.quarantined == {vhost("b=2")}  # c on trial
    quarantine.acked(ROUTES, named(table("a=1", "c=2", "d=2", "e=2")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    assert quarantine.convicted == quarantine.quarantined == {vhost("b=2")}
    assert quarantine.detail(vhost("c=2")) == ""


def test_an_edited_part_is_another_part() -> None:
    quarantine = Quarantine()
    quarantine.nacked(ROUTES, named(table("a=1")), "no")
    assert vhost("a=1") in quarantine.quarantined and vhost("a=2") not in quarantine.quarantined


def test_envoy_names_the_bad_cluster_so_its_companions_are_left_alone() -> None:
    quarantine = Quarantine()
    sent = named(cluster("a=2"), cluster("b=2"), cluster("c=2"))
    quarantine.nacked(CLUSTER, sent, "Error adding/updating cluster(s) b: Failed to load trusted CA")
    assert quarantine.convicted == quarantine.quarantined == {vhost("b=2", CLUSTER)}
    assert quarantine.detail(vhost("b=2", CLUSTER)) == "Failed to load trusted CA"


def test_if_it_named_the_wrong_one_the_next_refusal_finds_the_right_one() -> None:
    quarantine = Quarantine()
    quarantine.nacked(CLUSTER, named(cluster("a=2"), cluster("b=2")), "Error adding/updating cluster(s) a: b: lies")
    assert quarantine.quarantined == {vhost("a=2", CLUSTER)}
    quarantine.nacked(CLUSTER, named(cluster("b=2")), "Error adding/updating cluster(s) who: knows")
    assert vhost("b=2", CLUSTER) in quarantine.quarantined


def test_a_port_that_is_taken_puts_nobody_into_quarantine() -> None:
    quarantine = Quarantine()
    text = "Error adding/updating listener(s) l: cannot bind '0.0.0.0:80': Address already in use"
    sent = named(table("chain=1", name="l", type_url=LISTENER), table("chain=2", name="m", type_url=LISTENER))
    assert not quarantine.nacked(LISTENER, sent, text)
    assert quarantine.environment == {(LISTENER, "l"): "cannot bind '0.0.0.0:80': Address already in use"}
    quarantine.acked(LISTENER, sent)
    assert quarantine.environment == {}


def test_a_bad_chain_beside_a_taken_port_is_found() -> None:
    quarantine = Quarantine()
    text = "Error adding/updating listener(s) l: cannot bind '0.0.0.0:80': Permission denied\nm: bad chain"
    sent = named(table("chain=1", name="l", type_url=LISTENER), table("chain=2", name="m", type_url=LISTENER))
    assert quarantine.nacked(LISTENER, sent, text)
    assert quarantine.quarantined == {vhost("chain=2", LISTENER)}
    assert set(quarantine.environment) == {(LISTENER, "l")}


def test_a_refusal_no_part_can_be_blamed_for_is_reported_as_such() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    assert not quarantine.nacked(ROUTES, named(table("a=1")), "something about the table itself")
    assert quarantine.unattributed == {(ROUTES, "http"): "something about the table itself"}
    quarantine.acked(ROUTES, named(table("a=1")))
    assert quarantine.unattributed == {}


def test_a_second_proxy_that_refuses_the_same_response_changes_nothing() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    bad = named(table("a=1", "b=2", "c=2"))
    assert quarantine.nacked(ROUTES, bad, "no")
    assert not quarantine.nacked(ROUTES, bad, "no")
    quarantine.acked(ROUTES, named(table("a=1")))  # c on trial
    assert not quarantine.nacked(ROUTES, bad, "no")  # slow, and no verdict on c
    assert not quarantine.convicted


def test_an_edit_made_during_a_trial_is_suspected_too() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1")))  # c on trial
    quarantine.nacked(ROUTES, named(table("a=9", "c=2")), "no")
    assert not quarantine.convicted
    assert {vhost("a=9"), vhost("c=2")} <= quarantine.quarantined


def test_a_suspect_the_user_removes_does_not_hold_up_the_others() -> None:
    quarantine, cache = Quarantine(), Cache()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1")))
    cache.apply({ROUTES: named(table("a=1", "c=2"))})
    assert not quarantine.served(cache, frozenset())  # not what the cache was built with
    assert not quarantine.served(cache, quarantine.quarantined)  # c is on its way
    assert quarantine.quarantined == {vhost("b=2")}
    cache.apply({ROUTES: named(table("a=1"))})
    assert quarantine.served(cache, quarantine.quarantined)  # c is gone: on to b
    assert quarantine.quarantined == frozenset()


def test_nobody_is_released_before_the_quarantine_has_arrived() -> None:
    quarantine, cache = Quarantine(), Cache()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    cache.apply({ROUTES: named(table("a=1"))})
    assert not quarantine.served(cache, quarantine.quarantined)
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2")}


@given(st.data())
def test_every_culprit_is_found_every_innocent_released_and_no_culprit_served(data: st.DataObject) -> None:
    """An engine and an Envoy that refuses a table if and only if it holds a culprit; edits happen in between."""
    count = data.draw(st.integers(1, 24))
    culprits = data.draw(st.sets(st.integers(0, count - 1)))
    parts = {f"v{i}": f"{'bad' if i in culprits else 'good'}" for i in range(count)}
    edits = data.draw(st.lists(st.tuples(st.integers(0, 60), st.integers(0, count - 1), st.sampled_from("bgx")), max_size=4))
    as_clusters = data.draw(st.booleans())
    type_url = CLUSTER if as_clusters else ROUTES
    quarantine, cache = Quarantine(), Cache()

    def build() -> dict[str, Resource]:
        kept = [f"{id}={hash}" for id, hash in parts.items() if Part(type_url, id, hash) not in quarantine.quarantined]
        return named(*map(cluster, kept)) if as_clusters else named(table(*kept))

    served: dict[str, Resource] = {}
    refused = True
    """After a refusal something is sent in any case: the session does not know what the proxy has."""
    for step in range(200):
        for when, index, how in edits:
            if when == step and how == "x":
                parts.pop(f"v{index}", None)
            elif when == step:
                parts[f"v{index}"] = f"{'bad' if how == 'b' else 'good'}-{step}"
        while True:
            without = quarantine.quarantined
            resources = build()
            cache = Cache()
            cache.apply({type_url: resources})
            if not quarantine.served(cache, without):
                break
        if as_clusters:
            sent = {n: r for n, r in resources.items() if served.get(n) != r}
            gone = served.keys() - resources.keys()
            if not (sent or gone or refused):
                break
        else:
            sent = resources
            if served == resources and not refused:
                break
        refused = any(hash.startswith("bad") for r in sent.values() for hash in r.parts.values())
        if refused:
            if as_clusters:  # what is withdrawn goes whatever becomes of the rest
                served = {n: r for n, r in served.items() if n in resources}
            quarantine.nacked(type_url, sent, "no")
        else:
            served = resources
            quarantine.acked(type_url, sent)
        assert not any(hash.startswith("bad") for r in served.values() for hash in r.parts.values())
    else:
        raise AssertionError("does not come to rest")

    if not edits:
        assert quarantine.convicted == {Part(type_url, id, hash) for id, hash in parts.items() if hash == "bad"}
    now_served = {id for r in served.values() for id in r.parts}
    assert now_served == {id for id, hash in parts.items() if hash.startswith("good")}
