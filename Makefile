# Two commands on a fresh machine: `make demo` and `make test`. Both install what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
STORE ?= store
FAST := not campaign and not docker and not spark and not runs and not thousands

# Else each command that a test starts would compile all that it loads.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo demo-docker test test-fast lint format bench torture doctor clean

help:
	@echo "make setup        virtual environment .venv with the assay command, and what judges histories compiled"
	@echo "make demo         a torture test in the simulator: one valid run, one with a known bug that is found"
	@echo "make demo-docker  the like in containers"
	@echo "make test         the tests (Docker tests where an engine answers)"
	@echo "make test-fast    no Docker, no Spark, no whole runs, no thousands of histories"
	@echo "make lint         ruff, mypy, import-linter"
	@echo "make format       what ruff can set right"
	@echo "make bench        benchmarks; prints what it measured (BENCH_ARGS=--write: and writes the documents' tables)"
	@echo "make torture      long campaigns: every flaw, clean seeds, fresh small histories, exhaustive tests; it goes on"
	@echo "make doctor       what this machine can do"
	@echo "make clean        removes .venv and what tools keep"

# Kernels of all models at once and side by side; else the first judge by each model would compile its own.
setup: $(STAMP)
	@$(BIN)/python -m checkers.compile_all

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "assay needs Python 3.11 or newer; name one with: make PYTHON=python3.12 …"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "Python's venv module is missing; on Debian: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/python -m assay.demo --store $(STORE)

demo-docker: $(STAMP)
	@$(BIN)/python -m assay.demo --on docker --store $(STORE)

test: setup
	@$(BIN)/python -m tests.support.halves $(PYTEST_ARGS)

# For while you work: pure parts, ports, checkers in-process. What it leaves out are the marks of pyproject.toml.
# The few kernels that it needs are compiled on the way.
test-fast: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "$(FAST)" $(PYTEST_ARGS)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python -m bench $(BENCH_ARGS)

torture: $(STAMP)
	$(BIN)/assay night run tests/torture.toml --resume --store $(STORE) $(TORTURE_ARGS)

doctor: $(STAMP)
	@$(BIN)/assay doctor

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
