# Slackwater: every command of the repository. `make help` lists them.
# Each target sets up what it needs (a virtual environment, pinned binaries in a cache) and cleans up what it started.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := slackwater webhook extender nodeagent controller certs cli
RIGS := PYTHONPATH=tests $(BIN)/python -m rigs
KEEP ?=

.PHONY: help machine dev demo down test unit lint types cluster vm image chart verify clean

help: ## list the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  \033[1m%-9s\033[0m %s\n", $$1, $$2}' $(MAKEFILE_LIST) \
	  | if [ -t 1 ]; then cat; else sed $$'s/\033\\[[0-9]*m//g'; fi

# Says at once what is missing, before anything is installed.
machine:
	@[ "$$(uname -s)" = Linux ] || { echo "This needs Linux (a real kubelet, cgroups); 'make unit' runs anywhere." >&2; exit 2; }
	@[ "$$(id -u)" = 0 ] || { echo "This needs root (network namespace, mounts, cgroups): use sudo; 'make unit' does not." >&2; exit 2; }
	@command -v go >/dev/null || [ -x /usr/local/go/bin/go ] || { echo "This needs Go, to build Kubernetes from pinned modules." >&2; exit 2; }

dev: $(STAMP) ## make the virtual environment with everything for development

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Slackwater needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "==> Python environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    echo "==> installing python3-venv"; \
	    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv; } >/dev/null; \
	    $(PYTHON) -m venv $(VENV); \
	  else echo "cannot make a virtual environment; install python3-venv first" >&2; exit 2; fi; }
	@$(BIN)/pip install --quiet --upgrade "pip>=25.1"
	@$(BIN)/pip install --quiet --group dev --editable .
	@touch $@

demo: machine $(STAMP) ## the main job for real on this machine: a cluster, lending, eviction, suspension (KEEP=1 leaves it up)
	@PYTHONPATH=tests $(BIN)/python -m demo $(if $(KEEP),--keep)

down: $(STAMP) ## stop the cluster that make demo KEEP=1 left up
	@$(RIGS) down --name demo

test: machine $(STAMP) ## everything: unit, component, cluster (real Kubernetes) and vm (real cgroup v2) tests
	@$(RIGS) build
	@$(BIN)/pytest -n 2 tests/unit tests/component
	@$(BIN)/pytest tests/vm tests/cluster

unit: $(STAMP) ## pure tests: seconds, no root
	@$(BIN)/pytest tests/unit

lint: $(STAMP) ## style, and the layer contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports

types: $(STAMP) ## mypy, strict, tests too
	@$(BIN)/mypy $(PACKAGES) tests

cluster: machine $(STAMP) ## tests on a real single-node Kubernetes (root)
	@$(RIGS) build
	@$(BIN)/pytest -m cluster

vm: machine $(STAMP) ## tests on a real cgroup v2 kernel with three NUMA nodes (qemu)
	@$(BIN)/pytest -m vm

image: machine $(STAMP) ## build the container image
	@$(RIGS) image

chart: $(STAMP) ## check and render the Helm chart
	@$(RIGS) chart

verify: $(STAMP) ## regenerate every generated file and demand a clean tree
	@$(BIN)/uv pip compile --quiet --generate-hashes --no-emit-index-url --python-version 3.11 --no-header \
	  --custom-compile-command "make verify" -o requirements.lock pyproject.toml
	@$(BIN)/python charts/slackwater/dashboards/generate.py
	@git diff --exit-code -- requirements.lock charts/slackwater/dashboards

clean: ## remove the virtual environment and caches in the tree (the binaries' cache stays)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache dist build
