# Two commands matter: `make run` and `make test`. Both set up .venv from requirements.lock first, once.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first interpreter that is new enough; `make PYTHON=/path/to/python3` overrides.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Two workers, one thread each: the matrices are small, and more threads only wait for each other.
WORKERS ?= 2
ARGS ?=

.PHONY: help setup run test lint format bench-speed bench-fleet bench-speed-page bench-curvature bench-bound bench-wide bench-page figures clean

help: ## this list
	@grep -hE '^[a-zA-Z0-9_-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([^:]+):.*## /  make \1\t/' | expand -t 18

setup: $(STAMP) ## create .venv and install everything from requirements.lock

$(STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "no Python >= 3.11 found; install one, or: make PYTHON=/path/to/python3"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --disable-pip-version-check -e . --no-deps --no-build-isolation
	touch $@

run: $(STAMP) ## stream the bundled air-quality sample through auto, NatSR and four others; report in out/
	$(BIN)/natsr run $(ARGS)

test: $(STAMP) ## all tests; those that need the full datasets are skipped, with the reason, unless NATSR_DATA is set
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n $(WORKERS) $(ARGS)

lint: $(STAMP) ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP) ## rewrite the files as ruff likes them
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench-speed: $(STAMP) ## time online steps beside the textbook step and their floor, write the page; a few minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed.measure $(ARGS)
	$(BIN)/python -m benchmarks.speed.page

bench-fleet: $(STAMP) ## many small learners, in every way of stepping them; a few minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.speed.fleet $(ARGS)

bench-speed-page: $(STAMP) ## write docs/speed.md and its figures from benchmarks/results
	$(BIN)/python -m benchmarks.speed.page

bench-curvature: $(STAMP) ## the Fisher estimate's error, and its effect on ETTh1; several minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.curvature $(ARGS)

bench-bound: $(STAMP) ## measure NatSR's updates on ETTh1 against the theorem's bound; a few minutes
	$(BIN)/python benchmarks/bound.py $(ARGS)

bench-wide: $(STAMP) ## peak memory of every method at the full width of ECL and Traffic, on synthetic files; half an hour
	$(BIN)/python -m benchmarks.wide $(ARGS)

bench-page: $(STAMP) ## write docs/benchmarks.md and the README's table from benchmarks/results
	$(BIN)/python -m benchmarks.page

figures: $(STAMP) ## draw the paper's figures from benchmarks/results into docs/assets, and write docs/figures.md
	$(BIN)/python -m benchmarks.figures.draw

clean: ## remove everything that make made
	rm -rf $(VENV) out build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
