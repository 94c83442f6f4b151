# Everything starts here: `make run` and `make test` set up what they need on a machine with Python 3.11+ and make.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := $(shell find src migrations twisted -name '*.py' -o -path '*/templates/*' 2>/dev/null)
# Strict editable installs link file by file: the list of files is part of what is installed.
LISTING := $(shell printf '%s\n' $(SOURCES) | LC_ALL=C sort | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/installed-$(LISTING)
PYTEST_ARGS ?=
# Tests wait for disks, brokers and Spark; two at a time take half as long.
PYTEST := -m pytest -n 2 --dist loadgroup
TESTS ?= tests

.PHONY: help run sample test lint types layers check changelog bench faults wheel clean needs

help:
	@echo 'make run     start the broker on 127.0.0.1:1883, data in ./data   (options: ARGS="--listen ...")'
	@echo 'make sample  a day of a building in ./building, to try the pipeline  (options: SAMPLE_ARGS="--scale 0.1")'
	@echo 'make test    run all tests                                         (options: TESTS=tests/wire COVERAGE=1)'
	@echo 'make check   ruff, mypy, import layers, changelog'
	@echo 'make bench   benchmarks, beside mosquitto where installed          (options: BENCH_ARGS="--quick")'
	@echo 'make faults  kill, fill, lock and damage for half an hour            (options: FAULTS_ARGS="--quick")'
	@echo 'make wheel   build the wheel and the source distribution in dist/'
	@echo 'make clean   remove what was built'

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Holdfast needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { echo "creating $(VENV) failed; on Debian: apt-get install python3-venv" >&2; exit 1; }

$(INSTALLED): setup.cfg pyproject.toml | $(BIN)/pip
	$(BIN)/pip install -q --disable-pip-version-check --config-settings editable_mode=strict -e .
	@rm -f $(VENV)/installed-*; touch $@

$(VENV)/dev: setup.cfg $(INSTALLED)
	$(BIN)/pip install -q --disable-pip-version-check --config-settings editable_mode=strict -e '.[dev]'
	@touch $@

run: $(INSTALLED)
	@exec $(BIN)/twistd -n --pidfile= holdfast $(ARGS)

sample: $(VENV)/dev
	@exec $(BIN)/python -m examples.building $(SAMPLE_ARGS)

needs: $(VENV)/dev
	@sh tests/needs.sh

test: needs
ifdef COVERAGE
	rm -f .coverage .coverage.*
	$(BIN)/python -m coverage run $(PYTEST) $(PYTEST_ARGS) $(TESTS)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report
else
	$(BIN)/python $(PYTEST) $(PYTEST_ARGS) $(TESTS)
endif

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/dev
	$(BIN)/mypy src migrations twisted/plugins/holdfast_plugin.py tests

layers: $(VENV)/dev
	$(BIN)/lint-imports

changelog: $(VENV)/dev
	$(BIN)/towncrier build --draft --version next > /dev/null

check: lint types layers changelog

bench: needs
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

faults: needs
	$(BIN)/python -m tests.faults $(FAULTS_ARGS)

wheel: $(VENV)/dev
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:
	rm -rf build dist src/*.egg-info $(VENV)/installed-* $(VENV)/dev .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
