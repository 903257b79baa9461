"""The texts are Envoy 1.40's own."""

from __future__ import annotations

from lasthop.edge.xds.nack import is_environment, reasons, summary

CLUSTERS = "Error adding/updating cluster(s) x, y: Didn't find 'no.such.socket', z: Failed to load trusted CA"
LISTENERS = (
    "Error adding/updating listener(s) second: cannot bind '127.0.0.1:53671': Address already in use\n"
    "third: error adding listener: 'third' has duplicate address '127.0.0.1:38425' as existing listener\n"
)


def test_each_named_resource_has_its_own_reason() -> None:
    assert reasons(CLUSTERS, ["x, y", "z", "innocent"]) == {
        "x, y": "Didn't find 'no.such.socket'",
        "z": "Failed to load trusted CA",
    }
    assert reasons(LISTENERS, ["first", "second", "third"]) == {
        "second": "cannot bind '127.0.0.1:53671': Address already in use",
        "third": "error adding listener: 'third' has duplicate address '127.0.0.1:38425' as existing listener",
    }


def test_a_text_without_a_sent_name_blames_nothing() -> None:
    assert reasons("missing ): (unclosed", ["http"]) is None
    assert reasons(CLUSTERS, ["other"]) is None


def test_a_truncated_text_blames_nothing_because_the_rest_may_be_at_fault() -> None:
    assert reasons(CLUSTERS + ", last: Fai...(truncated)", ["z", "last", "cut-off"]) is None


def test_a_name_that_ends_in_another_is_not_that_other() -> None:
    assert reasons("Error adding/updating cluster(s) shop-a: no", ["a", "shop-a"]) == {"shop-a": "no"}


def test_only_the_host_is_to_blame_for_a_port_that_cannot_be_bound() -> None:
    assert is_environment("cannot bind '0.0.0.0:443': Permission denied")
    assert is_environment("Address already in use")
    assert not is_environment("error adding listener: 'third' has duplicate address")


def test_the_summary_of_a_broken_constraint_leaves_out_the_quoted_resource() -> None:
    text = 'name: "t" routes { "somebody else\'s" }: Proto constraint validation failed (A.B: value does not match)'
    assert summary(text) == "Proto constraint validation failed (A.B: value does not match)"
    assert summary("missing ): (unclosed") == "missing ): (unclosed"
    assert len(summary("x" * 100_000)) == 500
