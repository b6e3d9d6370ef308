# Two commands for a newcomer: `make demo` and `make test`.  Everything lives in .venv and demo/.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export DO_NOT_TRACK := 1

.PHONY: help demo test test-all test-noise lint sbom bench audit accuracy results peers compare rulers docs diagrams server deploy worker lock clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      release a synthetic General Social Survey extract at epsilon 1, and its private report"
	@echo "make test      lint, types, layers, spelling, sentences and the tests"
	@echo "make test-all  the same with the slow tests"
	@echo "make test-noise  the statistical tests on fresh seeds: do more fail than chance makes?  SEED=N: as before"
	@echo "make docs      the documentation as a site, in site/: a dead link fails"
	@echo "make diagrams  draw the Mermaid drawings of the documentation as pictures; needs npm's @mermaid-js/mermaid-cli"
	@echo "make audit     true answers on many tables, and lower bounds on epsilon from thousands of releases: docs/audit.md"
	@echo "make sbom      the bill of materials of requirements.lock (CycloneDX), in dist/"
	@echo "make bench     the figures of benchmarks/README.md"
	@echo "make results   the papers' figures, and their methods on UCI Adult: docs/results/papers.md"
	@echo "make compare   AIM, MST and other peers on public tables, into docs/results/peers.md: hours, resumable, needs Python 3.11"
	@echo "make rulers    SDNist's and SDMetrics' reports, into docs/results.md and README: hours, resumable; SDNIST_SOURCE names a clone"
	@echo "make server    a Prefect server with its page, and a worker, until Ctrl-C (docs/operations/server.md)"
	@echo "make deploy    in another terminal: register the deployments; the page then has the run form"
	@echo "make worker    a worker for a server elsewhere (PREFECT_API_URL)"
	@echo "make lock      write the locks of every package anew, with uv"
	@echo "make clean     remove what these made"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; call: make PYTHON=python3.12 demo")'
	$(PYTHON) -m venv $(VENV)

# Every package at the version and with the hash of the lock, then this one; setuptools, which builds it, is in the lock.
# uv installs them in a fifth of pip's time.  Where it cannot (no wheel for this platform, an index that only pip's
# configuration knows how to reach), pip does.
define install
	@$(BIN)/pip install -q --no-deps --require-hashes -r requirements-uv.lock \
	  && UV_NATIVE_TLS=1 UV_DEFAULT_INDEX="$$($(BIN)/pip config get global.index-url 2>/dev/null)" \
	    $(BIN)/uv pip install -q --python $(BIN)/python --no-deps --require-hashes -r $(1) \
	  || { echo "uv could not install $(1): trying pip"; $(BIN)/pip install -q --no-deps --require-hashes -r $(1); }
	$(BIN)/pip install -q --no-deps --no-build-isolation -e .
endef

$(VENV)/.demo: pyproject.toml requirements.lock requirements-uv.lock | $(BIN)/python
	$(call install,requirements.lock)
	@touch $@

$(VENV)/.dev: pyproject.toml requirements-dev.lock requirements-uv.lock | $(BIN)/python
	$(call install,requirements-dev.lock)
	@touch $@

# For every Python from 3.11.0 on and every platform; versions in the locks stay where they fit.  Needs uv.
LOCK := uv pip compile -q --universal --python-version 3.11.0 --generate-hashes --no-header --no-annotate --extra example --extra postgres --extra databases --extra evaluation
lock:
	echo 'setuptools>=77' | $(LOCK) pyproject.toml - -o requirements.lock
	echo 'setuptools>=77' | $(LOCK) --extra dev --extra docs --extra second-opinion --extra codebooks --extra formats-check --extra dask --extra traces --extra lineage --extra delta --extra iceberg --extra sftp -c requirements.lock pyproject.toml - -o requirements-dev.lock
	echo uv | uv pip compile -q --universal --python-version 3.11.0 --generate-hashes --no-header --no-annotate - -o requirements-uv.lock

demo: $(VENV)/.demo
	@mkdir -p demo
	@$(BIN)/python examples/make_gss.py demo/gss.parquet
	PRIVSYN_LEDGER=demo/ledger.sqlite $(BIN)/privsyn release examples/gss.yaml --data demo/gss.parquet --out demo --prefect --yes
	$(BIN)/privsyn evaluate $$(ls -td demo/released/gss-???????? | head -n 1) --out demo

# No page asks anybody but the site: no font, script or picture from elsewhere.
docs: $(VENV)/.dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -q --strict

diagrams: $(VENV)/.dev
	$(BIN)/python docs/draw_diagrams.py

# What is spelled.
PROSE := README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs privsyn tasks flows data_contracts audit benchmarks examples deployments

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check -q .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell $(PROSE)
	$(BIN)/python docs/check_prose.py

# The processes that tests start load the project from its bytecode, whatever the user's environment says of that.
test test-all: export PYTHONDONTWRITEBYTECODE :=
# A whole check keeps nothing for the next one: writing that down takes a fifth of mypy's time.  `make lint` does.
test test-all: export MYPY_CACHE_DIR := /dev/null
# Every example of the properties, where `make test` tries a tenth of them.
test-all: export PRIVSYN_TEST_WHOLE := 1

# One more than there are cores: tests wait for servers, databases and kills.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")

# Kernels and tests are compiled once, not by each of the workers; what fails here fails there, in words.
.PHONY: compiled
compiled: $(VENV)/.dev
	$(BIN)/python -m tests.support.compiled
	-@$(BIN)/pytest -q --collect-only > /dev/null

test: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 lint compiled
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "not slow"

test-all: $(VENV)/.dev
	@$(MAKE) --no-print-directory -j 2 lint compiled
	$(BIN)/pytest -q -n $(WORKERS) --dist worksteal

test-noise: $(VENV)/.dev compiled
	$(if $(SEED),PRIVSYN_TEST_NOISE=$(SEED)) $(BIN)/python -m pytest -q -p tests.support.fresh_noise tests/statistical tests/privacy tests/unit/answers

audit: $(VENV)/.dev
	$(BIN)/python -m audit referee --markdown docs/audit.md
	$(BIN)/python -m audit tight --markdown docs/audit.md --roc docs/img/roc.png
	$(BIN)/python -m audit sampler --markdown docs/audit.md
	$(BIN)/python -m audit --markdown docs/audit.md

# What an installation from requirements.lock holds, with the hashes of each package, as CycloneDX.
SBOM := requirements --pyproject pyproject.toml --mc-type library --output-reproducible
sbom: $(VENV)/.dev
	@mkdir -p dist
	$(BIN)/cyclonedx-py $(SBOM) -o dist/privsyn-flows.cdx.json requirements.lock

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks.bench

accuracy: $(VENV)/.dev
	$(BIN)/python -m benchmarks.accuracy

results: $(VENV)/.dev
	$(BIN)/python -m benchmarks.paper_figures
	$(BIN)/python -m benchmarks.results
	$(BIN)/python -m benchmarks.references
	$(BIN)/python -m benchmarks.paper_comparison

# The peers' pins conflict with ours and with each other: an environment each, nothing of it in the project's.
PEERS := .venv-peers
PEERS_PYTHON ?= $(PYTHON)

$(PEERS)/%/.done: benchmarks/peers-%.txt
	$(PEERS_PYTHON) -m venv $(@D)
	$(@D)/bin/pip install -q --no-deps -r $<
	@touch $@

peers: $(PEERS)/dpmm/.done $(PEERS)/smartnoise/.done $(PEERS)/opendp/.done $(PEERS)/catboost/.done

compare: $(VENV)/.dev peers
	$(BIN)/python -m benchmarks.compare

# dpsynth needs Python 3.12: make .venv-peers/dpsynth/.done PEERS_PYTHON=python3.12
rulers: $(VENV)/.dev $(addprefix $(PEERS)/,$(addsuffix /.done,sdnist sdmetrics dpmm opendp sdv dpsynth))
	$(BIN)/python -m benchmarks.rulers

server worker: $(VENV)/.demo
	@exec $(BIN)/privsyn $@

deploy: $(VENV)/.demo
	@test -e examples/gss.parquet || $(BIN)/python examples/make_gss.py
	@$(BIN)/privsyn deploy

clean:
	rm -rf $(VENV) $(PEERS) demo site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
