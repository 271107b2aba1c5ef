# From a clean clone to a trained model: `make demo`. Needs make and CPython 3.11 or newer; everything else goes into $(VENV).

VENV ?= .venv
WORKERS ?= 2
PYTEST_ARGS ?=
# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)
# An index of PyTorch builds other than the default one, such as PyTorch's own for CPU-only Linux.
TORCH_INDEX ?=

BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
PIP_INSTALL := $(BIN)/python -m pip install --disable-pip-version-check -c constraints.txt
PYTEST_ENVIRONMENT := OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help demo test lint pytest format install install-dev clean

help:
	@echo 'make demo     install, then learn token boundaries on real text: about ten minutes'
	@echo 'make test     everything that CI runs: formatting, lint, types, tests'
	@echo 'make lint     formatting, lint and types only'
	@echo 'make format   mend formatting and what lint can mend'
	@echo 'make clean    remove $(VENV) and the caches; runs and corpora stay'
	@echo
	@echo 'make demo PYTHON=python3.12   uses that Python instead of the first one that is at least 3.11'
	@echo 'make demo TORCH_INDEX=URL     takes PyTorch from that index too (on Linux the default build is for CUDA)'
	@echo 'make test WORKERS=8           tests with as many processes'

demo: install
	@$(BIN)/byteseam demo

test: lint pytest

lint: install-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

pytest: install-dev
	$(PYTEST_ENVIRONMENT) $(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

format: install-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

install: $(STAMPS)/demo

install-dev: $(STAMPS)/dev

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -exec rm -rf {} +

# A stamp is written last: an interrupted installation leaves none, or an older one, and is taken up again.

$(STAMPS)/venv:
	@test -n "$(PYTHON)" || { echo 'byteseam needs CPython 3.11 or newer and found none: install it, or name it with make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'byteseam needs CPython 3.11 or newer, and $(PYTHON) is not: name another with make PYTHON=/path/to/python3' >&2; exit 1; }
	@"$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo '$(PYTHON) cannot make virtual environments: install its venv package (on Debian and Ubuntu: python3-venv)' >&2; exit 1; }
	@echo 'making $(VENV) with $(PYTHON)'
	@"$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo '$(VENV) holds an older Python than 3.11: make clean, then try again' >&2; exit 1; }
	@mkdir -p $(STAMPS) && touch $@

# PyTorch goes first and alone, at the tested version: asked for with a range, pip would take the newest and largest build.
$(STAMPS)/torch: constraints.txt $(STAMPS)/venv
	@echo 'installing PyTorch'
	@$(PIP_INSTALL) $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	@touch $@

$(STAMPS)/demo: pyproject.toml constraints.txt $(STAMPS)/torch
	@echo 'installing byteseam: about a minute'
	@$(PIP_INSTALL) --quiet -e .
	@touch $@

$(STAMPS)/dev: pyproject.toml constraints.txt $(STAMPS)/torch
	@echo 'installing byteseam and what its tests need: about a minute'
	@$(PIP_INSTALL) --quiet -e '.[dev]'
	@touch $(STAMPS)/demo $@
