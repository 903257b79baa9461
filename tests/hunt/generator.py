"""Generates histories: texts are edited, broken, moved and mended, and processes end, lose their state and start again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import get_args

from tests.hunt.base import BASE, hop_file
from tests.hunt.folder import MOUNTED
from tests.hunt.history import ALL, Delivery, Edit, Ending, History, Loss, Odd, Step
from tests.hunt.oracle import SERVICES
from tests.hunt.texts import (
    FILLER,
    GOOD,
    HIDDEN,
    JSON_HIDDEN,
    JSON_NAMED,
    NAMED,
    WHOLE_HIDDEN,
    WHOLE_NAMED,
    Policy,
    Text,
    documents,
)

FILES = ("policies.yaml", "bp.yaml", "team/p.yml", "more.json", f"{MOUNTED}/a.yaml", f"{MOUNTED}/b.yaml")
PORTS = (443, 8443)
LOSSES: tuple[Loss, ...] = ("", "", "all", "memory", "contents")


class Generator:
    """Intends something, writes it, and sometimes fails to. Every choice is taken from `r`."""

    def __init__(self, r: Random, *, processes: bool = True, huge: bool = True) -> None:
        self._r, self._processes, self._huge = r, processes, huge
        self._files: dict[str, tuple[Policy, ...]] = {}
        """The policies of each file, as they are meant."""
        self._hops: dict[str, int | None] = {}
        self._gateway = self._there = True
        self._odd: set[str] = set()
        self._made = 0
        self._healed = 0

    def history(self, steps: int) -> History:
        return History(tuple(step for step, _ in zip(self.steps(), range(steps), strict=False)), self.linked)

    def steps(self) -> Iterator[Step]:
        """Yields steps without end."""
        r = self._r
        yield self._first()
        acts = [
            *[self._add] * 3,
            *[self._remove] * 2,
            *[self._break] * 4,
            *[self._move] * 5,
            *[self._hop] * 5,
            *[self._whole_gateway],
            *[self._rename] * 2,
            *[self._odd_file],
            *([self._process] * 4 + [self._away] if self._processes else [self._process] * 3),
        ]
        while True:
            for _ in range(r.randint(3, 14)):
                yield from r.choice(acts)()
            yield from self._heal()

    # --- the beginning and the end of an episode ----------------------------------------------------------------------

    def _first(self) -> Step:
        self.linked = self._r.random() < 0.5
        return Step((*BASE, *self._arranged(everything=False)), process="term", why="start")

    def _arranged(self, everything: bool) -> list[Edit]:
        """Good texts of all files, with policies for some Services. Files below `mounted/` stay as they are."""
        r, edits = self._r, []
        keep = {path: policies for path, policies in self._files.items() if path.startswith(MOUNTED)}
        self._files = dict(keep)
        taken = {service for policies in keep.values() for policy in policies for service in policy.services}
        for service in SERVICES:
            self._hops[service] = PORTS[0] if everything or r.random() < 0.6 else None
            if service not in taken and r.random() < 0.5:
                path = r.choice([*FILES[:4], hop_file(service)])
                self._files[path] = (*self._files.get(path, ()), self._policy(service))
        for service in SERVICES:
            edits.append(self._text(hop_file(service)))
        edits += [self._text(path) for path in FILES[:4] if path in self._files]
        return edits

    def _heal(self) -> Iterator[Step]:
        r = self._r
        if not self._there:
            self._there = True
            yield Step(folder="back", why="the folder comes back")
        for path in [path for path in self._files if path.startswith(MOUNTED)]:
            yield Step((self._text(path),), "data", why="mend the mounted file")
        known = [*self._files, *self._odd]
        self._odd = set()
        self._gateway = True
        edits = self._arranged(everything=True)
        written = {edit.path for edit in edits}
        gone = [Edit(path) for path in dict.fromkeys(known) if path not in written and not path.startswith(MOUNTED)]
        self._healed += 1
        via: Delivery = r.choice(("write", "replace", "release"))
        yield Step((BASE[0], *edits, *gone), via, whole=True, compare=self._healed % 3 == 1, why="mend everything")

    # --- texts --------------------------------------------------------------------------------------------------------

    def _policy(self, *services: str) -> Policy:
        namespace = services[0].partition("/")[0]
        names = tuple(service.partition("/")[2] for service in services)
        self._made += 1
        return Policy(f"p{self._made}-{names[0]}", namespace, names)

    def _any_policy(self) -> Policy:
        first = self._r.choice(SERVICES)
        others = [s for s in SERVICES if s != first and s.partition("/")[0] == first.partition("/")[0]]
        return self._policy(first, *(self._r.sample(others, 1) if others and self._r.random() < 0.2 else ()))

    def _infra(self, path: str) -> tuple[list[str], tuple[str, ...]]:
        """Returns the documents in the file beside policies, and the hops that they make."""
        for service, port in self._hops.items():
            if path == hop_file(service) and port:
                hop = f"{service}:{port}"
                return [f"@HOP {hop}@\n"], (hop,)
        return [], ()

    def _text(self, path: str) -> Edit:
        """Writes a file as it is meant."""
        r, policies = self._r, self._files.get(path, ())
        texts, hops = self._infra(path)
        own = [policy.text for policy in policies] + [FILLER.format(f"filler-{path.replace('/', '-')}")]
        r.shuffle(own)
        names = tuple(service for policy in policies for service in policy.services)
        # The documents of a hop come as one text, so they cannot be listed.
        spelling = "json list" if path.endswith(".json") else "plain" if hops else r.choice(list(GOOD))
        text = GOOD[spelling]([*texts, *own], r)
        return Edit(path, text.text, text.encoding, names=names, hops=hops, how=spelling)

    def _broken(self, path: str) -> Edit:
        """Writes a file as it is meant, with a mistake. A file without a policy is broken for good measure."""
        r, policies = self._r, self._files.get(path, ())
        texts, _ = self._infra(path)
        services = tuple(service for policy in policies for service in policy.services)
        own = [policy.text for policy in policies]
        if path.endswith(".json"):
            if not own:
                return Edit(path, '{"apiVersion": ', unknown=ALL, how="json cut")
            hidden = r.random() < 0.4
            good = GOOD["json list"](own, r).text
            table = JSON_HIDDEN if hidden else JSON_NAMED
            name = r.choice(list(table))
            return Edit(path, table[name](good), unknown=ALL if hidden else services, how=name)
        if not own:
            return Edit(path, documents(*texts, "a: [\n"), unknown=ALL, how="unclosed")
        if r.random() < 0.1:
            hidden = r.random() < 0.5
            whole = WHOLE_HIDDEN if hidden else WHOLE_NAMED
            name = r.choice([breakage for breakage in whole if breakage != "huge" or self._huge])
            made: Text = whole[name](documents(*texts, *own))
            return Edit(path, made.text, made.encoding, made.pad, unknown=ALL if hidden else services, how=name)
        hidden = r.random() < 0.25
        breakages = HIDDEN if hidden else NAMED
        name = r.choice(list(breakages))
        guilty = r.randrange(len(own))
        own[guilty] = breakages[name](own[guilty], r)
        own += [FILLER.format("beside-it")] if r.random() < 0.3 else []
        return Edit(path, documents(*texts, *own), unknown=ALL if hidden else services, how=name)

    # --- what happens -------------------------------------------------------------------------------------------------

    def _deliver(self, edits: Sequence[Edit], why: str) -> Iterator[Step]:
        """Mounted files come by their own way, one step for each, in the order of the edits."""
        r = self._r
        mounted = [edit for edit in edits if edit.path.startswith(MOUNTED)]
        if mounted and len(mounted) < len(edits):
            for edit in edits:
                yield from self._deliver([edit], why)
        elif mounted:
            yield Step(tuple(edits), "data", why=why)
        elif self._processes and r.random() < 0.1:
            ends: tuple[Ending, ...] = ("kill", "term")
            how = r.choice(ends)
            yield Step(tuple(edits), process=how, lose=r.choice(LOSSES), why=f"{why}, while it is down")
        else:
            yield Step(tuple(edits), r.choice(("write", "write", "write", "write", "replace", "replace", "release")), why=why)

    def _add(self) -> Iterator[Step]:
        path = self._r.choice([*FILES, *map(hop_file, SERVICES)])
        self._files[path] = (*self._files.get(path, ()), self._any_policy())
        yield from self._deliver([self._text(path)], "add a policy")

    def _break(self) -> Iterator[Step]:
        r = self._r
        path = r.choice([*self._files, *map(hop_file, SERVICES)])
        if r.random() < 0.5:
            self._files[path] = (*self._files.get(path, ()), self._any_policy())
        yield from self._deliver([self._broken(path)], "break a text")

    def _remove(self) -> Iterator[Step]:
        """Policies are deleted, or commented out."""
        paths = [path for path, policies in self._files.items() if policies]
        if not paths:
            return
        path = self._r.choice(paths)
        gone, *rest = self._files[path]
        self._files[path] = tuple(rest)
        edit = self._text(path)
        if not path.endswith(".json") and self._r.random() < 0.5:
            comment = "".join(f"# {line}\n" for line in gone.text.splitlines())
            edit = Edit(path, f"{edit.content}\n---\n{comment}", names=edit.names, hops=edit.hops)
        yield from self._deliver([edit], "remove a policy")

    def _move(self) -> Iterator[Step]:
        """A policy moves to another file, which may be broken by it; the file that it comes from is written last."""
        r = self._r
        paths = [path for path, policies in self._files.items() if policies]
        if not paths:
            return
        source = r.choice(paths)
        target = r.choice([path for path in (*FILES, *map(hop_file, SERVICES)) if path != source])
        moved, *rest = self._files[source]
        self._files[target] = (*self._files.get(target, ()), moved)
        self._files[source] = tuple(rest)
        edits = [self._broken(target) if r.random() < 0.7 else self._text(target)]
        if rest or source in map(hop_file, SERVICES) or r.random() < 0.5:
            edits.append(self._text(source))
        else:
            del self._files[source]
            edits.append(Edit(source))
        yield from self._deliver(edits, f"move {moved.name}")

    def _hop(self) -> Iterator[Step]:
        r = self._r
        service = r.choice(SERVICES)
        port = self._hops[service]
        self._hops[service] = PORTS[0] if port is None else r.choice((None, PORTS[1 - PORTS.index(port)]))
        yield from self._deliver([self._text(hop_file(service))], f"{service}: port {port} to {self._hops[service]}")

    def _whole_gateway(self) -> Iterator[Step]:
        self._gateway = not self._gateway
        yield from self._deliver([BASE[0] if self._gateway else Edit("gateway.yaml")], "the Gateway goes or comes")

    def _rename(self) -> Iterator[Step]:
        paths = [path for path in FILES[:3] if path in self._files and path not in self._odd]
        if not paths:
            return
        path = self._r.choice(paths)
        to = path.replace("p", "q", 1)
        services = tuple(service for policy in self._files[path] for service in policy.services)
        if other_case := self._r.random() < 0.3:
            to = to[:-1] + to[-1].upper()
        # It is mended first, so that there is only one question at a time.
        yield Step((self._text(path),), why="mend before renaming")
        yield Step((Edit(path, to=to, unknown=services if other_case else ()),), why="rename")
        self._files[to] = self._files.pop(path)
        self._odd.add(to)

    def _odd_file(self) -> Iterator[Step]:
        r = self._r
        paths = [path for path in FILES[:3] if path in self._files]
        if not paths:
            return
        path = r.choice(paths)
        odd = r.choice(get_args(Odd))
        services = tuple(service for policy in self._files[path] for service in policy.services)
        yield Step((self._text(path),), why="mend before it becomes odd")
        yield Step((Edit(path, odd=odd, unknown=() if odd == "folder" else services),), why=f"{path} becomes a {odd}")
        if odd == "folder":
            yield Step((Edit(path),), why="and goes")
            del self._files[path]

    def _process(self) -> Iterator[Step]:
        r = self._r
        ends: tuple[Ending, ...] = ("kill", "term", "hup") if self._processes else ("term",)
        how = r.choice(ends)
        yield Step(process=how, lose=r.choice(LOSSES) if how != "hup" else "", why=f"{how}, and start again")

    def _away(self) -> Iterator[Step]:
        yield Step(folder="away", why="the folder goes away")
        yield Step(folder="back", why="the folder comes back")
