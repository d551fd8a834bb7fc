# Each target makes .venv and installs what it needs by itself; PYTHON names the interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test test-all check lint oracle bench docs clean

run: .venv/.demo  ## train on the real digits, save, reload, predict, draw
	$(BIN)/adjoint demo

# Tests start hundreds of processes: what they import is compiled once.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

# What is run on NumPy alone and with kernels for arrays of every size, besides by default.
BOTH := $(addprefix tests/test_, $(addsuffix .py, autograd convolution dtypes elementwise functional \
	indexing inplace movement nn nn_modules ops optim reduction selection sort))

test: .venv/.peers lint  ## every op, every module, every promise once
	$(PYTEST)

test-all: .venv/.peers  ## what is left: many cases of each, and other ways to compute (docs/testing.md)
	$(PYTEST) -m sweep
	ADJOINT_BACKEND=numpy $(PYTEST) -m "" $(BOTH)
	ADJOINT_NATIVE_SIZE=0 $(PYTEST) -m "" $(BOTH)

check: .venv/.test lint  ## the quick ones, before each commit
	$(BIN)/python -m pytest -x tests/test_end_to_end.py

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

oracle: .venv/.test  ## the bits, nodes and launches of BASE=<commit>, compared with those of here
	@test -n "$(BASE)" || { echo "which commit was before? make oracle BASE=<commit>"; exit 2; }
	git worktree add --force --detach build/oracle/base $(BASE)
	PYTHONPATH=build/oracle/base $(BIN)/python tests/oracle.py record build/oracle/bits; \
		status=$$?; git worktree remove --force build/oracle/base; exit $$status
	$(BIN)/python -m tests.oracle compare build/oracle/bits

bench: .venv/.peers  ## ratios to PyTorch, measured interleaved
	$(BIN)/python -m benchmarks

docs: .venv/.docs  ## guide and reference as a web site in site/
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.demo: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[demo]"
	@touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[test]"
	@touch $@

.venv/.peers: .venv/.test
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[peers]"
	@touch $@

.venv/.docs: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[docs]"
	@touch $@

clean:
	rm -rf .venv site runs build *.egg-info
