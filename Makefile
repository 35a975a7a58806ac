# Two commands do all on a fresh machine with Python 3.11 to 3.13 and make: `make demo` and `make test`.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# uv takes a quarter of pip's time, and does not read pip's configuration: where it reaches no index, pip may.
PACKAGES := --constraint constraints.txt --editable ".[dev]"
# The files of tests are shared out among processes (tests/conftest.py); each starts its own servers where it needs some.
SHARED := --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder
SLOWEST := --durations=40 --durations-min=0.5

# Where it is set, as in many images, each of the hundreds of processes of the tests would compile Scalescope anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check docs bench faults constraints clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

install: $(INSTALLED) ## Make the virtual environment

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGES) || $(PIP) $(PACKAGES)
	touch $@

demo: $(INSTALLED) ## Find out why 300 workers are no faster than 3 (about a minute, nothing leaves this machine)
	$(BIN)/scalescope demo

test: $(INSTALLED) ## Run the tests: one of each behaviour, with whatever real parts this machine has (11 to 13 minutes on 2 cores)
	@echo "This takes 11 to 13 minutes on 2 quick cores, twice as long on slow ones. The 40 slowest tests are listed at the end."
	$(PYTEST) -m "not thorough" $(SHARED) $(SLOWEST)

test-all: $(INSTALLED) ## Run the tests and all their variants (an hour on 2 cores)
	$(PYTEST) $(SHARED) $(SLOWEST)

check: $(INSTALLED) ## Formatting, lint, types and import contracts, then the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy --explicit-package-bases infra
	$(BIN)/lint-imports
	$(MAKE) test

docs: $(INSTALLED) ## Write the documentation as a site with search to site/; reference/ comes from declarations
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Look at it: $(BIN)/python -m http.server --directory site 8000"

bench: $(INSTALLED) ## Measure speed and methods (an hour or two; wants a quiet machine)
	$(BIN)/python -m evidence all

faults: $(INSTALLED) ## Hit a sweep with every fault at every stage, and write docs/faults.md (an hour)
	$(BIN)/python -m evidence faults

constraints: $(INSTALLED) ## Renew constraints.txt from pyproject.toml
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --no-emit-index-url --no-emit-find-links \
		--no-annotate --no-header --upgrade --extra dev pyproject.toml --output-file constraints.txt

clean: ## Remove what the commands above made
	rm -rf $(VENV) site .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
