# Each target makes .venv and installs what it needs by itself; PYTHON names the interpreter.
PYTHON ?= python3
BIN := .venv/bin
PIP := ADJOINT_COMPILED=0 $(BIN)/python -m pip --disable-pip-version-check install --quiet# `.built` compiles

# A step that writes to .venv, with the process that does it in a mark until it has ended by itself. One that was
# interrupted, or killed (a status over 128), leaves packages without files or versions, over which pip stumbles: then
# .venv is made anew.
MARK := .venv/.unfinished
install = @mkdir -p .venv; echo '$(1)'; trap 'exit 130' INT TERM HUP; echo $$$$ > $(MARK); $(1); status=$$?; test $$status -gt 128 || rm -f $(MARK); exit $$status

# LAST: whether that process runs (a zombie does not).
LAST := $(shell test ! -e $(MARK) || { read id < $(MARK) && kill -0 $$id 2>/dev/null && ! grep -q 'State:.Z' /proc/$$id/status 2>/dev/null && echo runs; } \
	|| { rm -rf .venv; echo interrupted; })
ifeq ($(LAST),runs)
$(error process $(shell cat $(MARK)) installs into .venv: wait for it, or remove .venv)
else ifeq ($(LAST),interrupted)
$(info the last install was interrupted: .venv is made anew)
endif

.PHONY: run test test-all test-turn check lint build wheel pythons ecosystem outside oracle bench docs clean

run: .venv/.demo  ## train on the real digits, save, reload, predict, draw
	$(BIN)/adjoint demo
	@ls adjoint/extensions.*.txt >/dev/null 2>&1 || echo "The core ran interpreted. 'make build' compiles it in a minute or two: small calls then take a seventh of the time."

# What is run interpreted, besides compiled, and on other Pythons: see adjoint/core/extensions.py.
CORE := $(addprefix tests/, $(addprefix autograd/test_, autograd.py function.py functional.py inplace.py) test_tensor.py runtime/test_lazy.py reactive/test_reactive.py \
	$(addprefix backends/native/, test_eager.py runtime/test_launch.py lowering/test_fused.py))
SOURCES := setup.py adjoint/core/extensions.py $(foreach each,$(shell find adjoint -name '*.pxd'),$(each) $(each:.pxd=.py))

# Tests start hundreds of processes: what they import is compiled once.
export PYTHONDONTWRITEBYTECODE :=

# Room for the kernels of all tests and of several trees: with less, those of one run drive out those of another.
export ADJOINT_CACHE_BYTES ?= 1073741824
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

# What is run on NumPy alone and with kernels for arrays of every size, besides by default.
BOTH := $(addprefix tests/, $(addsuffix .py, $(addprefix autograd/test_, autograd functional inplace) core/test_dtypes \
	$(addprefix ops/test_, elementwise indexing movement ops) ops/nn/test_convolution $(addprefix ops/reduce/test_, reduction sort) \
	$(addprefix nn/test_, nn nn_modules) optim/test_optim backends/numpy/test_selection))

# What runs as if on a narrower processor: what its kernels, NumPy, oneDNN and PyTorch compute there.
NARROW := $(BOTH) $(addprefix tests/, $(addsuffix .py, test_follow_torch test_end_to_end compiler/capture/test_sizes compiler/run/test_step compiler/passes/test_layouts))

# The compiler's own tests run the code that users run; others, in which kernels run a few times on little, what is compiled sooner.
# The native backend's run both ways: the latter in `test`, the former in `test-all`.
OTHERS := ADJOINT_OPTIMIZE=0 $(PYTEST) --ignore=tests/backends/codegen

# What forks many processes runs first, without the rest: a fork copies the tables of its parent's memory, of which the
# names of all tests, and PyTorch, are a gigabyte. It then takes half as long. With it what waits for whole worlds, at the begin.
FORKS := $(addprefix tests/, distributed data io/test_crash_safety.py ops/test_sharing.py test_signals.py tools/profiler/test_recording.py \
	$(addprefix backends/native/, gemm/test_gemm.py runtime test_determinism.py) compiler/capture/test_loader_loop.py)

# Lint takes one core for half a minute in a fresh clone: on the other pytest makes the bytecode of all tests.
test: .venv/.peers .venv/.built  ## every op, every module, every promise once
	@$(MAKE) --no-print-directory lint & lint=$$!; ls tests/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 \
		|| $(OTHERS) -n 0 --collect-only >/dev/null 2>&1; wait $$lint
	$(OTHERS) $(FORKS)
	$(OTHERS) $(addprefix --ignore=,$(FORKS))
	$(PYTEST) tests/backends/codegen

test-all: .venv/.peers .venv/.built  ## what is left: many cases of each, and other ways to compute (docs/testing.md)
	$(OTHERS) -m sweep $(filter-out tests/backends/%,$(FORKS))
	$(OTHERS) -m sweep $(addprefix --ignore=,tests/backends/native $(FORKS))
	$(PYTEST) -m sweep tests/backends/codegen
	$(PYTEST) -m "" tests/backends/native
	ADJOINT_BACKEND=numpy $(PYTEST) -m "" $(BOTH) tests/test_differential.py
	ADJOINT_OPTIMIZE=0 ADJOINT_NATIVE_SIZE=0 $(PYTEST) -m "" $(BOTH)
	ADJOINT_COMPILED=0 $(PYTEST) $(CORE)
	PYTHONMALLOC=debug PYTHONDEVMODE=1 $(PYTEST) $(CORE)
	$(MAKE) pythons
	$(MAKE) ecosystem

TURN = $$($(BIN)/python -m tests.turn $(1))

test-turn: .venv/.peers .venv/.built  ## of test-all, what the commit's hash chooses (tests/turn.py), and the core interpreted
	@$(BIN)/python -m tests.turn
	$(OTHERS) -m sweep --seventh $(call TURN,seventh) $(filter-out tests/backends/%,$(FORKS))
	$(OTHERS) -m sweep --seventh $(call TURN,seventh) $(addprefix --ignore=,tests/backends/native $(FORKS))
	$(PYTEST) -m "" --seventh $(call TURN,seventh) tests/backends/codegen tests/backends/native
	$(BIN)/python -m tests.turn on $(call TURN,processor) env ADJOINT_OPTIMIZE=0 $(PYTEST) $(NARROW)
	ADJOINT_COMPILED=0 $(PYTEST) $(CORE)
	$(BIN)/python tests/pythons.py --only $(call TURN,python) $(CORE) tests/test_end_to_end.py

check: .venv/.test lint  ## the quick ones, before each commit
	$(BIN)/python -m pytest -x tests/test_end_to_end.py

build: .venv/.build  ## the core's extensions, from their sources
	$(BIN)/python setup.py --quiet build_ext --inplace

wheel: .venv/bin/python  ## a wheel with extensions in dist/, which installs without a compiler
	$(BIN)/python -m pip --disable-pip-version-check wheel --quiet --no-deps --wheel-dir dist .

pythons: .venv/.test  ## the core's tests on the other Pythons that there are
	$(BIN)/python tests/pythons.py $(CORE) tests/test_end_to_end.py

ecosystem: .venv/.built  ## packages that import torch, without PyTorch, beside what PyTorch gave
	$(BIN)/python tests/ecosystem/run.py

outside: .venv/.built  ## suites that nobody here wrote (SUITE=name), from checkouts in OUTSIDE=, without PyTorch
	OUTSIDE="$(OUTSIDE)" $(BIN)/python tests/outside/run.py $(SUITE)

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/house.py
	$(BIN)/mypy

oracle: .venv/.test  ## the bits, nodes and launches of BASE=<commit>, both interpreted, compared with those of here
	@test -n "$(BASE)" || { echo "which commit was before? make oracle BASE=<commit>"; exit 2; }
	git worktree add --force --detach build/oracle/base $(BASE)
	ADJOINT_COMPILED=0 PYTHONPATH=build/oracle/base $(BIN)/python tests/oracle.py record build/oracle/bits; \
		status=$$?; git worktree remove --force build/oracle/base; exit $$status
	ADJOINT_COMPILED=0 $(BIN)/python -m tests.oracle compare build/oracle/bits

bench: .venv/.peers .venv/.built  ## ratios to PyTorch, measured interleaved
	$(BIN)/python -m benchmarks

docs: .venv/.docs  ## guide and reference as a web site in site/
	$(BIN)/mkdocs build --strict --quiet
	@echo "open site/index.html"

.venv/bin/python:
	$(call install,$(PYTHON) -m venv .venv)

.venv/.build: .venv/bin/python pyproject.toml
	$(call install,$(PIP) --editable ".[build]")
	@touch $@

# Bytecode of what a run does not import is never made: a third of the installation's time.
.venv/.demo: .venv/bin/python pyproject.toml
	$(call install,$(PIP) --no-compile --editable ".[demo]")
	@touch $@

.venv/.test: .venv/bin/python pyproject.toml
	$(call install,$(PIP) --editable ".[test]")
	@touch $@

.venv/.built: .venv/.test $(SOURCES)
	$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

.venv/.peers: .venv/.test
	$(call install,$(PIP) torch==2.13.0)
	$(call install,$(PIP) --editable ".[peers]")
	@touch $@

.venv/.docs: .venv/bin/python pyproject.toml
	$(call install,$(PIP) --editable ".[docs]")
	@touch $@

clean:
	rm -rf .venv site runs build dist *.egg-info adjoint/extensions.*.txt
	find adjoint -name '*.so' -delete
