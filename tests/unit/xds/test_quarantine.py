"""Parts that are withheld from Envoy after a NACK, and the release of valid ones."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lasthop.base.api.meta import Key
from lasthop.edge.xds.cache import Cache
from lasthop.edge.xds.quarantine import Quarantine
from lasthop.engine.outputs.envoy.resource import CLUSTER, LISTENER, ROUTES, Part, Resource


def table(*parts: str, name: str = "http", type_url: str = ROUTES) -> Resource:
    """A route table of virtual hosts, each written `id=hash`."""
    return Resource(type_url, name, " ".join(parts).encode(), "-".join(parts), dict(p.split("=") for p in parts))


def cluster(text: str) -> Resource:
    return table(text, name=text.split("=")[0], type_url=CLUSTER)


def named(*resources: Resource) -> dict[str, Resource]:
    return {r.name: r for r in resources}


def vhost(text: str, type_url: str = ROUTES) -> Part:
    part, _, hash = text.partition("=")
    return Part(type_url, part, hash)


def test_the_one_part_that_changed_since_the_last_ack_is_quarantined() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1", "b=1")))
    assert quarantine.nacked(ROUTES, named(table("a=1", "b=2")), "missing ): (unclosed")
    assert quarantine.quarantined == quarantine.culprits == {vhost("b=2")}
    assert quarantine.detail(vhost("b=2")) == "missing ): (unclosed"


def test_several_candidates_are_quarantined_then_half_is_released() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2"), vhost("d=2"), vhost("e=2")}
    assert not quarantine.culprits

    assert quarantine.acked(ROUTES, named(table("a=1")))  # the quarantine has arrived: d and e are probed
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2")}
    assert quarantine.acked(ROUTES, named(table("a=1", "d=2", "e=2")))  # cleared; b and c are probed
    assert quarantine.quarantined == frozenset()
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1", "d=2", "e=2")))
    assert quarantine.quarantined == {vhost("b=2")}  # c being probed
    quarantine.acked(ROUTES, named(table("a=1", "c=2", "d=2", "e=2")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    assert quarantine.culprits == quarantine.quarantined == {vhost("b=2")}
    assert quarantine.detail(vhost("c=2")) == ""


def test_an_edited_part_is_another_part() -> None:
    quarantine = Quarantine()
    quarantine.nacked(ROUTES, named(table("a=1")), "no")
    assert vhost("a=1") in quarantine.quarantined and vhost("a=2") not in quarantine.quarantined


def test_envoy_names_the_bad_cluster_so_its_companions_are_left_alone() -> None:
    quarantine = Quarantine()
    sent = named(cluster("a=2"), cluster("b=2"), cluster("c=2"))
    quarantine.nacked(CLUSTER, sent, "Error adding/updating cluster(s) b: Failed to load trusted CA")
    assert quarantine.culprits == quarantine.quarantined == {vhost("b=2", CLUSTER)}
    assert quarantine.detail(vhost("b=2", CLUSTER)) == "Failed to load trusted CA"


def test_if_it_named_the_wrong_one_the_next_refusal_finds_the_right_one() -> None:
    quarantine = Quarantine()
    quarantine.nacked(CLUSTER, named(cluster("a=2"), cluster("b=2")), "Error adding/updating cluster(s) a: b: lies")
    assert quarantine.quarantined == {vhost("a=2", CLUSTER)}
    quarantine.nacked(CLUSTER, named(cluster("b=2")), "Error adding/updating cluster(s) who: knows")
    assert vhost("b=2", CLUSTER) in quarantine.quarantined


def test_a_taken_port_quarantines_nothing() -> None:
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
    quarantine.acked(ROUTES, named(table("a=1")))  # c being probed
    assert not quarantine.nacked(ROUTES, bad, "no")  # slow, and no verdict on c
    assert not quarantine.culprits


def test_an_edit_made_during_a_trial_is_suspected_too() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1")))  # c being probed
    quarantine.nacked(ROUTES, named(table("a=9", "c=2")), "no")
    assert not quarantine.culprits
    assert {vhost("a=9"), vhost("c=2")} <= quarantine.quarantined


def test_a_suspect_the_user_removes_does_not_hold_up_the_others() -> None:
    quarantine, cache = Quarantine(), Cache()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1")))
    cache.apply({ROUTES: named(table("a=1", "c=2"))})
    assert not quarantine.served(cache, frozenset())  # differs from the cache's input
    assert not quarantine.served(cache, quarantine.quarantined)  # c is on its way
    assert quarantine.quarantined == {vhost("b=2")}
    cache.apply({ROUTES: named(table("a=1"))})
    assert quarantine.served(cache, quarantine.quarantined)  # c is gone: on to b
    assert quarantine.quarantined == frozenset()


def test_no_part_is_released_before_the_quarantine_has_arrived() -> None:
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
            if as_clusters:  # withdrawn parts are removed, independent of the rest
                served = {n: r for n, r in served.items() if n in resources}
            quarantine.nacked(type_url, sent, "no")
        else:
            served = resources
            quarantine.acked(type_url, sent)
        assert not any(hash.startswith("bad") for r in served.values() for hash in r.parts.values())
    else:
        raise AssertionError("does not come to rest")

    if not edits:
        assert quarantine.culprits == {Part(type_url, id, hash) for id, hash in parts.items() if hash == "bad"}
    now_served = {id for r in served.values() for id in r.parts}
    assert now_served == {id for id, hash in parts.items() if hash.startswith("good")}


# --- several proxies, several owners ---------------------------------------------------------------------------------


def owned(*parts: str, name: str = "http") -> Resource:
    """A route table of routes, each written `namespace/id=hash`."""
    plain = table(*parts, name=name)
    return msgspec.structs.replace(plain, owners={id: Key("HTTPRoute", *id.split("/")) for id in plain.parts})


def route(text: str) -> Part:
    id, hash = text.split("=")
    return Part(ROUTES, id, hash, Key("HTTPRoute", *id.split("/")))


def test_candidates_are_split_by_owner_so_that_other_owners_are_released_completely() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(owned()))
    quarantine.nacked(ROUTES, named(owned("b/1=2", "a/1=2", "b/2=2", "a/2=2")), "no")
    quarantine.acked(ROUTES, named(owned()))
    assert quarantine.quarantined == {route("a/1=2"), route("a/2=2")}  # the parts of b are being probed
    quarantine.acked(ROUTES, named(owned("b/1=2", "b/2=2")))
    assert quarantine.quarantined == frozenset()


def test_the_part_names_the_object_at_fault() -> None:
    quarantine = Quarantine()
    quarantine.nacked(ROUTES, named(owned("a/1=2")), "no")
    (culprit,) = quarantine.culprits
    assert culprit.owner == Key("HTTPRoute", "a", "1")


def test_a_replacement_of_a_part_may_be_refused_too() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1", "b=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2")), "no")
    quarantine.nacked(ROUTES, named(table("a=1", "b=2-500")), "still no")
    assert quarantine.culprits == {vhost("b=2"), vhost("b=2-500")}
    assert quarantine.detail(vhost("b=2")) == "no" and quarantine.detail(vhost("b=2-500")) == "still no"


def test_a_resource_that_another_proxy_accepted_is_not_withheld_from_all() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    sent = named(table("a=1", "b=2"))
    quarantine.acked(ROUTES, sent)
    assert not quarantine.nacked(ROUTES, sent, "I refuse everything")
    assert quarantine.quarantined == frozenset() and quarantine.unattributed == {(ROUTES, "http"): "I refuse everything"}


def test_nor_if_the_one_that_refuses_is_the_first_to_answer() -> None:
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    sent = named(table("a=1", "b=2", "c=2", "d=2"))
    assert quarantine.nacked(ROUTES, sent, "I refuse everything")
    assert quarantine.acked(ROUTES, sent)
    assert quarantine.quarantined == quarantine.culprits == frozenset()
    assert not quarantine.nacked(ROUTES, sent, "I refuse everything")
    assert quarantine.quarantined == frozenset()


def test_one_convicted_route_is_acquitted_by_another_proxy_but_a_cluster_stays_away() -> None:
    """A proxy that refuses a cluster goes on with its old version, which may check less."""
    quarantine = Quarantine()
    quarantine.nacked(ROUTES, named(table("a=2")), "no")
    quarantine.nacked(CLUSTER, named(cluster("c=2")), "no")
    quarantine.acked(ROUTES, named(table("a=2")))
    quarantine.acked(CLUSTER, named(cluster("c=2")))
    assert quarantine.quarantined == quarantine.culprits == {vhost("c=2", CLUSTER)}


def test_a_second_proxys_refusal_counts_neither_for_suspects_nor_for_what_is_released() -> None:
    """Both have been sent the same table; the second one's answer to it comes when the search is on already."""
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    bad = named(table("a=1", "b=2", "c=2", "d=2", "e=2"))
    quarantine.nacked(ROUTES, bad, "no")
    quarantine.acked(ROUTES, named(table("a=1")))
    waiting = quarantine.quarantined
    assert waiting == {vhost("b=2"), vhost("c=2")}  # d and e being probed
    assert not quarantine.nacked(ROUTES, bad, "no")
    assert quarantine.quarantined == waiting and not quarantine.culprits and not quarantine.unattributed
    quarantine.acked(ROUTES, named(table("a=1", "d=2", "e=2")))
    assert quarantine.quarantined == frozenset()  # d and e are cleared all the same, b and c being probed


def test_resources_that_envoy_names_are_searched_each_by_itself() -> None:
    """Each of them holds something bad, so neither is released on the strength of the other's innocence."""
    quarantine = Quarantine()
    sent = named(table("l1=2", "l2=2", name="l", type_url=LISTENER), table("m1=2", "m2=2", name="m", type_url=LISTENER))
    quarantine.nacked(LISTENER, sent, "Error adding/updating listener(s) l: bad chain\nm: bad chain")
    quarantine.acked(LISTENER, {})
    # Halves of one listener: bisected together, l's and m's would be one half each, and both being probed were m's.
    assert quarantine.quarantined == {vhost("l1=2", LISTENER), vhost("l2=2", LISTENER), vhost("m1=2", LISTENER)}


def test_one_named_resource_with_one_part_is_quarantined_although_others_are_named_beside_it() -> None:
    quarantine = Quarantine()
    quarantine.nacked(CLUSTER, named(cluster("a=2"), cluster("b=2")), "Error adding/updating cluster(s) a: bad, b: bad")
    assert quarantine.culprits == quarantine.quarantined == {vhost("a=2", CLUSTER), vhost("b=2", CLUSTER)}


def test_only_listeners_fail_for_reasons_of_the_host() -> None:
    """A cluster does not bind a port; its error message sounds so because a user wrote that text into it."""
    quarantine = Quarantine()
    text = "Error adding/updating cluster(s) a: Address already in use"
    assert quarantine.nacked(CLUSTER, named(cluster("a=2")), text)
    assert quarantine.culprits == {vhost("a=2", CLUSTER)} and quarantine.environment == {}


def test_a_build_that_was_overtaken_tells_nothing_of_what_is_released() -> None:
    quarantine, cache = Quarantine(), Cache()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2")), "no")
    before = quarantine.quarantined
    quarantine.acked(ROUTES, named(table("a=1")))  # c is released; the cache has still been built without it
    cache.apply({ROUTES: named(table("a=1"))})
    assert not quarantine.served(cache, before)
    assert quarantine.quarantined == {vhost("b=2")}  # b is not let out on the word that c is gone
    assert not quarantine.nacked(ROUTES, named(table("a=1", "c=2")), "no") or quarantine.culprits == {vhost("c=2")}
    assert quarantine.culprits == {vhost("c=2")}


def test_one_trial_at_a_time() -> None:
    """With two groups out at once a refusal would tell nothing of either."""
    quarantine = Quarantine()
    quarantine.acked(ROUTES, named(table("a=1")))
    quarantine.nacked(ROUTES, named(table("a=1", "b=2", "c=2", "d=2", "e=2")), "no")
    quarantine.acked(ROUTES, named(table("a=1")))
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2")}
    # Another table is confirmed, and this one once more as it was: no verdict on d and e.
    assert not quarantine.acked(ROUTES, named(table("z=1", name="other")))
    assert not quarantine.acked(ROUTES, named(table("a=1")))
    assert quarantine.quarantined == {vhost("b=2"), vhost("c=2")}


@given(st.data())
def test_every_route_is_served_at_the_first_level_that_envoy_takes(data: st.DataObject) -> None:
    """As routes give way: an engine that builds the first level of each that is not in quarantine, and an Envoy that refuses a
    table if and only if it holds something bad."""
    bad_levels = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=16))
    quarantine, cache = Quarantine(), Cache()
    quarantine.acked(ROUTES, named(table()))
    served: dict[str, Resource] = {}
    for _ in range(400):
        while True:
            without = quarantine.quarantined
            levels = [next(n for n in range(4) if n == 3 or vhost(f"v{i}={n}") not in without) for i in range(len(bad_levels))]
            resources = named(table(*(f"v{i}={level}" for i, level in enumerate(levels) if level < 3)))
            cache = Cache()
            cache.apply({ROUTES: resources})
            if not quarantine.served(cache, without):
                break
        if served == resources:
            break
        if any(level < bad for level, bad in zip(levels, bad_levels, strict=True)):
            quarantine.nacked(ROUTES, resources, "no")
            served = {}
        else:
            quarantine.acked(ROUTES, resources)
            served = resources
    else:
        raise AssertionError("does not come to rest")
    assert levels == bad_levels
    assert quarantine.culprits == {vhost(f"v{i}={n}") for i, bad in enumerate(bad_levels) for n in range(bad)}
