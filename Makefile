# corelkv. `make help` lists the targets; `make run` and `make test` are all a newcomer needs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# A stamp per set of extras: what is installed once is not installed again until its pins change.
NODE := $(VENV)/.installed-node
TEST := $(VENV)/.installed-test
ALL := $(VENV)/.installed-all

LAYER ?= transport
SEEDS ?= 1-500
NODES ?= 3-9
REPETITIONS ?= 20
DURATION ?= 60
USERS ?= 50
SHAPE ?= soak
WORKERS ?= 0
CHAOS ?= 0
LOAD_NODES = $(if $(filter file,$(origin NODES)),3,$(NODES))
LOAD_OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help run test check simulate settle mutants explore scenarios bench load setup clean

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'
	@echo "  options: LAYER=$(LAYER) (or membership, corel, store) SEEDS=$(SEEDS) NODES=$(NODES) REPETITIONS=$(REPETITIONS) PYTHON=$(PYTHON)"
	@echo "  of make load: DURATION=$(DURATION) USERS=$(USERS) NODES=$(LOAD_NODES) SHAPE=$(SHAPE) (or step, spike, knee) CHAOS=$(CHAOS) WORKERS=$(WORKERS)"
	@echo "                LOAD_OPTIONS='--level p99_ms=500' (python -m loadtest run --help)"

run: $(NODE) ## start three nodes on this machine (Ctrl-C stops them)
	$(BIN)/corelkv cluster

test: $(TEST) ## set up, check and run all tests (at most 20 minutes on two cores)
	@tests/system-packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q -n auto --dist worksteal --ignore tests/spark
	$(BIN)/pytest -q tests/spark

check: $(TEST) ## lint and type-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

simulate: $(TEST) ## run simulator seeds: make simulate LAYER=transport SEEDS=1-500
	$(BIN)/python -m tests.simulator run --layer $(LAYER) --seeds $(SEEDS) --nodes $(NODES)

settle: $(TEST) ## time from a stable network to one view, over seeds (make settle SEEDS=1-1000 takes hours)
	$(BIN)/python -m tests.simulator settle --seeds $(SEEDS)

mutants: $(TEST) ## plant bugs in every layer one by one: each must be noticed (some minutes)
	$(BIN)/python -m tests.simulator mutants

explore: $(TEST) ## every interleaving of the membership's control messages in small cases (ten minutes on one core)
	$(BIN)/python -m tests.exploration

scenarios: $(TEST) ## cuts, heals, kills and stops of five and of nine real nodes in namespaces, over and over, timed
	@tests/system-packages
	$(BIN)/python -m tests.network.membership_campaign --repetitions $(REPETITIONS)
	$(BIN)/python -m tests.network.log_campaign --repetitions $(REPETITIONS)
	$(BIN)/python -m tests.network.nine_campaign --repetitions $(REPETITIONS)

bench: $(TEST) ## measure throughput, latency and CPU on this machine
	$(BIN)/python -m tests.benchmarks.transport
	$(BIN)/python -m tests.benchmarks.log
	$(BIN)/python -m tests.benchmarks.simulator
	@tests/system-packages wrk etcd-server
	$(BIN)/python -m tests.benchmarks.store
	$(BIN)/python -m tests.benchmarks.failover

load: $(TEST) ## load a cluster with Locust, audit it, write a report: make load DURATION=180 CHAOS=1
	$(BIN)/python -m loadtest run --duration $(DURATION) --users $(USERS) --nodes $(LOAD_NODES) --shape $(SHAPE) \
	    --workers $(WORKERS) $(if $(filter-out 0,$(CHAOS)),--chaos) $(LOAD_OPTIONS)

setup: $(ALL) ## install everything, Spark and Locust too, into .venv

clean: ## remove .venv and caches
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "corelkv needs Python 3.11 or newer; '$(PYTHON)' is not. Use make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	    { echo "cannot make a virtual environment: on Debian, apt-get install python3-venv"; rm -rf $(VENV); exit 1; }

$(NODE): $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable .
	@touch $@

$(TEST): $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[test,check,loadtest,spark]'
	@touch $(NODE) $@

$(ALL): $(VENV)/bin/python pyproject.toml constraints.txt
	$(PIP_INSTALL) --editable '.[test,check,spark,loadtest,profile]'
	@touch $(NODE) $(TEST) $@
