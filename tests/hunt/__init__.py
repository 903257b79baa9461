"""Hunts for plaintext: random histories of texts on a folder, against a real `lasthop run` with a real Envoy.

`make hunt SECONDS=1800 SEED=7`, or `make hunt SEED=1 STEPS=300`. The backends accept TLS and plaintext on one port and record
which. `oracle.py` states the rule and shares no code with Lasthop: its input states which Services the text of each file
names, or may name.

A violation ends the run with a shorter history in a file, and `python -m tests.hunt replay FILE` plays it again. Once it is
fixed, the file belongs into `corpus/`, which `test_corpus.py` plays.

    generator.py ──Step──> folder.py (files)  ──> lasthop ──> Envoy ──> backends
                     └───> oracle.py ── what is forbidden now ──────────┘  gateway.py compares
"""
