# A checkout's own commands. They make a virtual environment and install what they need into it.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help bench test check format perf doctor torch clean

VENV := .venv
# Candidates, best first; the first one of version 3.11 or newer is taken.
PYTHON := python3 python3.11 python3.12 python3.13 python3.14 python
# Added to pytest's command line, for example: make bench ARGS="-k gemm"
ARGS :=
# Processes that share the project's tests. Many more would disturb those that measure time.
JOBS := 2

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

help:
	@echo "make bench    compile and judge the reference solutions on Hopper: measured with a GPU, from stored evidence without"
	@echo "make test     run the project's own tests"
	@echo "make check    lint, format, types, import contracts"
	@echo "make format   apply the linter's fixes and the format"
	@echo "make perf     run the project's own benchmarks; those of the GPU side are skipped without one"
	@echo "make doctor   say what this machine can do and how to close the gaps"
	@echo "make torch    install torch $(TORCH), whatever build the package index has (a CUDA build is several GB)"
	@echo "make clean    remove the virtual environment and the caches; runs under generated/ stay"
	@echo
	@echo "Variables: VENV=$(VENV), PYTHON=PATH, JOBS=$(JOBS) for the tests, ARGS='more arguments for pytest'"

bench: $(INSTALLED)
	$(BIN)/python -m pytest -m h100 --model=reference $(ARGS)

# Without the benchmark's plugin, whose scheduler hands out work in blocks: good for trajectories, not for tests.
test: $(INSTALLED) $(VENV)/.torch $(VENV)/.peers
	$(BIN)/python -m pytest tests ptx_tests/test_packs.py ptx_tests/packs/b200 -p no:ptxbench.plugin.pytest_plugin --capture=fd -n $(JOBS) $(ARGS)

# All four, whatever the first ones find.
check: $(INSTALLED)
	@status=0; for command in "ruff check ." "ruff format --check ." mypy lint-imports; do \
	  echo "$$command"; $(BIN)/$$command || status=1; \
	done; exit $$status

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

perf: $(INSTALLED)
	$(BIN)/python -m pytest tests/perf -o python_files='bench_*.py' $(ARGS)

doctor: $(INSTALLED)
	$(BIN)/ptxbench doctor

torch: $(INSTALLED)
	$(PIP) install --quiet -c constraints.txt torch
	@touch $(VENV)/.torch

clean:
	@if [ -e $(INSTALLED) ]; then rm -rf $(VENV); fi
	rm -rf build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -not -path './.*' -prune -exec rm -rf {} +

# The build backend comes first and pinned: an isolated build would fetch the newest one.
$(INSTALLED): pyproject.toml constraints.txt
	@for python in $(PYTHON); do \
	  if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "expected Python 3.11 or newer, found none among: $(PYTHON); install one, or say make PYTHON=PATH" >&2; exit 1; \
	fi; \
	if ! $(PIP) --version >/dev/null 2>&1; then \
	  "$$found" -m venv $(VENV) || { echo "expected the venv module of $$found; install it (Debian: python3-venv)" >&2; exit 1; }; \
	fi
	$(PIP) install --quiet -c constraints.txt setuptools
	$(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[toolchain,test]'
	@touch $@

# Tests hold our models of the public schema to those of flashinfer-bench, whose models need nothing that is not here.
# Its runtime would bring several GB. Where the package is not to be had, those tests are skipped and say so.
$(VENV)/.peers: $(INSTALLED) constraints.txt
	@$(PIP) install --quiet -c constraints.txt --no-deps flashinfer-bench || echo "no flashinfer-bench on this package index: tests that compare with it are skipped"
	@touch $@

# Some tests compare with torch on the CPU. Its CPU build is small, but not every package index has it, and the CUDA
# build is too much to install unasked. Without torch those tests are skipped and say so. So are those of training,
# whose packages would bring the CUDA build along.
$(VENV)/.torch: $(INSTALLED)
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then :; \
	elif $(PIP) install --quiet -c constraints.txt 'torch==$(TORCH)+cpu' 2>/dev/null; then echo "installed the CPU build of torch $(TORCH)"; \
	else echo "no CPU build of torch $(TORCH) on this package index: tests that need torch are skipped ('make torch' installs any build)"; fi
	@if $(BIN)/python -c 'import torch' 2>/dev/null; then \
	  $(PIP) install --quiet -c constraints.txt --no-build-isolation -e '.[train]' || echo "no packages for training on this package index: its tests are skipped"; fi
	@touch $@
