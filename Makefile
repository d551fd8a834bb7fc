# Each target makes .venv and installs what it needs by itself; PYTHON names the interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: run test test-all check lint build wheel pythons ecosystem oracle bench docs clean

run: .venv/.demo  ## train on the real digits, save, reload, predict, draw
	$(BIN)/adjoint demo

# What is run interpreted, besides compiled, and on other Pythons: see adjoint/extensions.py.
CORE := $(addprefix tests/, $(addprefix autograd/test_, autograd.py function.py functional.py inplace.py) test_tensor.py $(addprefix graph/test_, lazy.py reactive.py) \
	$(addprefix backends/native/, test_eager.py runtime/test_launch.py lowering/test_fused.py))
SOURCES := setup.py adjoint/extensions.py $(foreach each,$(wildcard adjoint/*/*.pxd adjoint/*/*/*.pxd),$(each) $(each:.pxd=.py))

# Tests start hundreds of processes: what they import is compiled once.
export PYTHONDONTWRITEBYTECODE :=
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

# What is run on NumPy alone and with kernels for arrays of every size, besides by default.
BOTH := $(addprefix tests/, $(addsuffix .py, $(addprefix autograd/test_, autograd functional inplace) core/test_dtypes \
	$(addprefix ops/test_, elementwise indexing movement ops) ops/nn/test_convolution $(addprefix ops/reduce/test_, reduction sort) \
	$(addprefix nn/test_, nn nn_modules) optim/test_optim backends/numpy/test_selection))

# The compiler's own tests run the code that users run; others, in which kernels run a few times on little, what is compiled sooner.
# The native backend's run both ways: the latter in `test`, the former in `test-all`.
OTHERS := ADJOINT_OPTIMIZE=0 $(PYTEST) --ignore=tests/kernels

test: .venv/.peers .venv/.built lint  ## every op, every module, every promise once
	$(OTHERS)
	$(PYTEST) tests/kernels

test-all: .venv/.peers .venv/.built  ## what is left: many cases of each, and other ways to compute (docs/testing.md)
	$(OTHERS) -m sweep --ignore=tests/backends/native
	$(PYTEST) -m sweep tests/kernels
	$(PYTEST) -m "" tests/backends/native
	ADJOINT_BACKEND=numpy $(PYTEST) -m "" $(BOTH) tests/test_differential.py
	ADJOINT_OPTIMIZE=0 ADJOINT_NATIVE_SIZE=0 $(PYTEST) -m "" $(BOTH)
	ADJOINT_COMPILED=0 $(PYTEST) $(CORE)
	PYTHONMALLOC=debug PYTHONDEVMODE=1 $(PYTEST) $(CORE)
	$(MAKE) pythons
	$(MAKE) ecosystem

check: .venv/.test lint  ## the quick ones, before each commit
	$(BIN)/python -m pytest -x tests/test_end_to_end.py

build: .venv/.test  ## the core's extensions, from their sources
	$(BIN)/python setup.py --quiet build_ext --inplace

wheel: .venv/bin/python  ## a wheel with extensions in dist/, which installs without a compiler
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

pythons: .venv/.test  ## the core's tests on the other Pythons that there are
	$(BIN)/python tests/pythons.py $(CORE) tests/test_end_to_end.py

ecosystem: .venv/.built  ## packages that import torch, without PyTorch, beside what PyTorch gave
	$(BIN)/python tests/ecosystem/run.py

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

.venv/.built: .venv/.test $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

.venv/.peers: .venv/.test
	$(PIP) torch==2.13.0
	$(PIP) --editable ".[peers]"
	@touch $@

.venv/.docs: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[docs]"
	@touch $@

clean:
	rm -rf .venv site runs build dist *.egg-info adjoint/extensions.*.txt
	find adjoint -name '*.so' -delete
