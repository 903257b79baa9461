"""Builds records of changes for tests: a chain of entries, with incidents of the record itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from lasthop.engine.memory.record import BEGAN, INCIDENT, Entry, Gap, Record, about_record, chained, digest_of, sealed


def mk_record(
    changes: Iterable[Entry] = (),
    since: float | None = None,
    dropped: Mapping[str, float] | None = None,
    incidents: Iterable[tuple[float, str]] = (),
    revision: int = 0,
) -> Record:
    """Returns a record that began at `since` and has dropped changes of these namespaces until these times, none of which had
    a number."""
    began = [about_record(BEGAN, "no hops", since)] if since is not None else []
    entries = [*began, *changes, *(about_record(INCIDENT, what, at) for at, what in incidents)]
    chain = chained(entries)
    if dropped:
        last = msgspec.structs.replace(entries[-1], gap=Gap(digest_of(chain[:-1]), dict(dropped)))
        chain[-1] = sealed(last, chain[-2] if len(chain) > 1 else None)
    return Record(tuple(chain), chain[-1].hash if chain else "", revision)
