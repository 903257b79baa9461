PYTHON ?= python3
UV ?= uv
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help setup run test fmt typecheck lint prose docs site stubs update-cases fuzz hunt promtool bench bench-quick import-traefik judge conformance cluster dist wheel-check image bare service helm upgrade release lock

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: .venv/.installed ## Create .venv with everything that the other targets need

# Installed again only when what is asked for changes; each stamp is made last, so a broken install is repeated.
.venv/.locked: requirements.lock
	@$(PYTHON) -m tools.setup
	@touch $@

.venv/.installed: .venv/.locked pyproject.toml
	@$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps --no-compile --quiet --editable .
	@touch $@

run: setup ## Run the demo: a gateway and three backends on this machine
	@$(BIN)/python -m examples.quickstart

# More workers than cores, because many tests wait for an Envoy; files in the order of tests/conftest.py. Those of tests/apiserver need
# servers that `make conformance` builds, so they come after it (.ci/run).
# Hundreds of processes import the same modules, so bytecode is kept, regardless of the environment.
test: export PYTHONDONTWRITEBYTECODE :=
test: setup ## Run all tests, and install the programs they need (root, Debian), or some: PYTEST='tests/cases -k waiver'
	@$(if $(PYTEST),,$(BIN)/python -m tools.programs test)
	@$(BIN)/pytest -n $$(($$(nproc) + 2)) --dist loadfile --no-loadscope-reorder $(or $(PYTEST),--ignore=tests/apiserver)

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

prose: setup ## List sentences that are hard to read in the lines changed since a revision, as advice: BASE, FILES
	@$(BIN)/python -m tools.prose --base $(or $(BASE),main) $(FILES)

docs: setup ## Write the generated parts of docs/, its pictures, and the manifests and the chart in deploy/
	@$(BIN)/python -m docs.generate
	@$(BIN)/python -m deploy.generate

.venv/.site: .venv/.installed docs/requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r docs/requirements.lock
	@touch $@

site: .venv/.site ## Build the documentation as a site, in site/: every link and its first screen are checked
	@$(BIN)/python -m docs.site site
	@$(BIN)/python -m tools.programs site
	@$(BIN)/pytest -q -p no:cacheprovider tests/docs/test_front_page.py

stubs: setup ## Write stubs/, the types of Envoy's messages that the code uses
	@$(BIN)/python -m tools.envoy_stubs

update-cases: setup ## Write the expected half of the cases; read the diff
	@$(BIN)/pytest tests/cases tests/importers/test_cases.py --update

# By number (ITERATIONS, always the same worlds) or by time (SECONDS); see tests/fuzz.
fuzz: setup ## Try random objects on a real Envoy: SEED, FIRST, ITERATIONS, SECONDS
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED)) $(if $(FIRST),--first $(FIRST)) $(if $(ITERATIONS),--iterations $(ITERATIONS)) $(if $(SECONDS),--seconds $(SECONDS))

# By number (STEPS, always the same history) or by time (SECONDS); see tests/hunt.
hunt: setup ## Break, move and lose the texts of policies under a real Envoy, and look for plaintext: SEED, STEPS, SECONDS
	@$(BIN)/python -m tests.hunt $(if $(SEED),--seed $(SEED)) $(if $(STEPS),--steps $(STEPS)) $(if $(SECONDS),--seconds $(SECONDS))

promtool: setup ## Check metrics, alert rules and their tests with Prometheus' promtool: PROMTOOL
	@$(if $(PROMTOOL),PROMTOOL=$(PROMTOOL)) $(BIN)/python -m tests.promtool

# Only for the plots, so not a part of setup.
.venv/.plots: .venv/.installed bench/requirements.lock
	@$(BIN)/python -m pip install --disable-pip-version-check --quiet --require-hashes --no-deps -r bench/requirements.lock
	@touch $@

bench: setup .venv/.plots ## Measure everything beside its competitors, and write bench/RESULTS.md: 30 minutes (root, Go)
	@$(BIN)/python -m bench.all

bench-quick: setup ## Measure the same with few objects: 5 minutes (root, Go)
	@$(BIN)/python -m bench.all --quick

import-traefik: setup ## Compare a real Traefik with the report of the import (needs Go; builds it once)
	@$(BIN)/python -m bench.import_traefik

judge: setup ## Judge Lasthop, Envoy Gateway and Traefik on a real API server, and write docs/judged.md: CASES (root, Go)
	@$(BIN)/python -m bench.judged $(if $(CASES),--cases '$(CASES)')

# A whole run begins with the checks of the node that it runs on.
IMAGE := $(if $(SHIPPED),--shipped)
conformance: setup ## Run the official Gateway API suite on a real API server: SUITE, RUN, FEATURES, CHANNEL, WAY, SHIPPED=1 (root)
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance selftest)
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance install $(IMAGE))
	@$(if $(SUITE)$(RUN)$(FEATURES),,$(BIN)/python -m conformance observe $(IMAGE))
	@$(BIN)/python -m conformance run $(IMAGE) $(if $(SUITE),--suite $(SUITE)) $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY)) $(foreach test,$(RUN),--run $(test)) $(if $(FEATURES),--features $(FEATURES))

cluster: setup ## Bring up a cluster with Lasthop: SUITE, CHANNEL, WAY (root)
	@$(BIN)/python -m conformance up $(IMAGE) $(if $(SUITE),--suite $(SUITE)) $(if $(CHANNEL),--channel $(CHANNEL)) $(if $(WAY),--way $(WAY))

dist: setup ## Build the wheel and the sdist into dist/, twice, and compare the bytes
	@$(BIN)/python -m release.dist

wheel-check: dist ## Install the wheel into a new virtual environment, as pipx does, and try it
	@$(BIN)/python -m release.installed

image: setup ## Build deploy/Dockerfile with buildah, write its SBOM and try it: BASE (root, Debian)
	@$(BIN)/python -m release.image $(if $(BASE),--base $(BASE))

bare: setup ## Run `make run` and `make test` on a Debian with Python, make and git only, as root and as a plain user: ALL=1 (root, Debian)
	@$(BIN)/python -m release.bare $(if $(ALL),--all)

service: dist ## Install the wheel on a Debian of its own, under its systemd, and restart the service under load (root, Debian)
	@$(BIN)/python -m release.service

helm: setup ## Check the chart with the real helm (built once) on a real API server, upgrade and rollback under load: SHIPPED=1 (root)
	@$(BIN)/python -m conformance helm $(IMAGE)

# Versions are installed once into the cache folder.
upgrade: setup ## Upgrade from another commit to this one and back under load, on a folder and in a cluster: FROM, SHIPPED=1 (root)
	@test -n "$(FROM)" || { echo "FROM is missing; name the commit, tag or branch to upgrade from: make upgrade FROM=main"; exit 2; }
	@$(BIN)/python -m release.upgrade $(FROM)
	@$(BIN)/python -m conformance upgrade $(FROM) $(IMAGE)

# Checks the commit first: it must be committed, with its date in the changelog. See docs/releasing.md.
release: setup ## Build and check everything that a release consists of, into dist/: FROM, SIGNING_KEY (root, Debian)
	@$(BIN)/python -m release.check before
	@$(MAKE) --no-print-directory wheel-check service image
	@$(MAKE) --no-print-directory helm SHIPPED=1
	@$(if $(FROM),$(MAKE) --no-print-directory upgrade SHIPPED=1,echo "Not upgraded from a version before: FROM=vVERSION make release does it under load.")
	@$(BIN)/python -m release.check after

COMPILE := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
LOCK := $(COMPILE) pyproject.toml

lock: ## Write the requirements.lock files and deploy/build.lock anew from pyproject.toml (needs uv)
	@$(LOCK) --group dev --output-file requirements.lock
	@$(LOCK) --constraint requirements.lock --output-file deploy/requirements.lock
	@$(COMPILE) --group build --constraint requirements.lock --output-file deploy/build.lock
	@$(COMPILE) --group site --constraint requirements.lock --output-file docs/requirements.lock
	@$(COMPILE) --group bench --constraint requirements.lock --output-file bench/requirements.lock
