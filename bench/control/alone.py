"""Measures Lasthop only: the bytes that an edit sends, one CA shared by all policies, and unreferenced objects."""

from __future__ import annotations

import time

from bench.control import objects
from bench.control.edits import Editor
from bench.control.side_by_side import Figures, Say
from bench.control.systems import lasthop_get
from bench.probe import Probe
from bench.sampler import Sampler
from bench.xds_bytes import sent
from lasthop.engine.outputs.envoy.resource import ENDPOINTS, type_name

UNREFERENCED = 20
SAMPLED = 24
"""Hosts watched while the CA of all is rotated."""


def measure(editor: Editor, figures: Figures, say: Say) -> None:
    endpoint_bytes(editor, figures, say)
    unreferenced(editor, figures, say)
    rotation(editor, min(100, editor.size), "CA of 100 policies", figures, say)
    rotation(editor, editor.size, "CA of all policies", figures, say)


def endpoint_bytes(editor: Editor, figures: Figures, say: Say) -> None:
    say("what an endpoint edit sends")
    before = sent(lasthop_get, editor.size)
    for number in (0, 0):  # there and back
        editor.endpoint(number)
        editor.quiet(0.5)
    grown = {type_: count - before.get(type_, 0) for type_, count in sent(lasthop_get, editor.size).items()}
    figures.add("endpoint edit: xDS bytes", "B", grown.pop(type_name(ENDPOINTS), 0) / 2)
    figures.add("endpoint edit: xDS bytes that are not endpoints", "B", sum(grown.values()) / 2)


def unreferenced(editor: Editor, figures: Figures, say: Say) -> None:
    say("an object without references")
    before, cpu, began = sent(lasthop_get, editor.size), editor.system.cpu(), time.perf_counter()
    for count in range(UNREFERENCED):
        editor.writers[0].ca("nobody", f"not a certificate {count}")
        time.sleep(0.05)
    editor.quiet(0.5)
    spent = editor.system.cpu() - cpu - editor.idle * (time.perf_counter() - began)
    figures.add("unreferenced ConfigMap: xDS bytes", "B", sum(sent(lasthop_get, editor.size).values()) - sum(before.values()))
    figures.add("unreferenced ConfigMap: controller CPU", "ms", 1000 * spent / UNREFERENCED)


def rotation(editor: Editor, count: int, what: str, figures: Figures, say: Say) -> None:
    """Renews the CA of many policies while its certificates stay valid: no request may fail."""
    numbers, name = range(count), f"shared-{count}"
    say(f"{what}: sharing it")
    editor.share_ca(numbers, name)
    say(f"{what}: renewing it")
    hosts = [objects.host(number) for number in numbers[:: max(1, len(numbers) // SAMPLED)]]
    sampler = Sampler(Probe(editor.system.port), hosts)
    cpu = editor.system.cpu()
    began = editor.writers[0].ca(name, editor.fitting())
    sampler.start()
    sampler.join()
    if sampler.error is not None:
        raise sampler.error
    editor.quiet()
    failed = sum(count for status, count in sampler.seen.items() if status != 200)
    figures.add(f"{what}: effective", "s", sampler.last - began)
    figures.add(f"{what}: failed requests", "", failed)
    figures.add(f"{what}: controller CPU", "s", editor.system.cpu() - cpu)
