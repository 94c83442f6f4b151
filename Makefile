# Everything starts here. `make run` and `make test` install their needs; they need only Python 3.11+ and make.
# Editors, pre-commit hooks and CI run the targets lint, types, layers, changelog and test: there are no other commands.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SOURCES := $(shell find src migrations twisted -name '*.py' -o -name '*.sql' -o -name '*.mako' -o -name '*.sh' -o -path '*/templates/*' -o -path '*/static/*' 2>/dev/null)
# A strict editable install links file by file, so a new or moved file needs a new install.
LISTING := $(shell printf '%s\n' $(SOURCES) | LC_ALL=C sort | cksum | cut -d' ' -f1)
INSTALLED := $(VENV)/installed-$(LISTING)
PYTEST_ARGS ?=
# Tests mostly wait for disks, brokers and Spark, so two processes take half the time. Those with real processes wait most.
WORKERS = 2
test-processes: WORKERS = 4
# The broker's tests have no groups. To hand out thousands of tests by groups takes the main process as long as many tests.
DIST = loadgroup
test-broker unit lowest: DIST = worksteal
PYTEST = -m pytest -n $(WORKERS) --dist $(DIST)
# Tests start hundreds of short processes. Where the environment forbids bytecode files, each would compile all modules.
TESTING := env -u PYTHONDONTWRITEBYTECODE $(BIN)/python
# The stages of `make test`, in their order. A test that is in none of the other folders belongs to the broker's stage.
STAGES := broker pipeline processes
pipeline := tests/pipeline tests/docs
processes := tests/e2e tests/dashboard
broker := tests $(addprefix --ignore=,$(pipeline) $(processes))
COMPILED_PACKAGE := build/compiled/made-$(LISTING)

.PHONY: help run cluster unit test $(STAGES:%=test-%) nightly lowest lint types layers check check-file changelog bench faults wheel compiled clean needs picture schema lock audit echarts

help:
	@echo 'make run     start the broker on 127.0.0.1:1883, data in ./data   (options: ARGS="--listen ...")'
	@echo 'make test    run all tests in stages, up to the first that fails  (options: TESTS=tests/wire PYTEST_ARGS=-x)'
	@echo '             a stage alone: make test-broker (COVERAGE=1 measures it), test-pipeline,'
	@echo '             test-processes (COMPILED=1 with the path of a message compiled)'
	@echo 'make cluster run Postgres, NATS, three brokers and a balancer on 127.0.0.1, to kill some of them'
	@echo 'make unit    run tests of the broker with a third of the packages   (options: TESTS=tests/wire PYTEST_ARGS=-x)'
	@echo 'make nightly run the tests that take more than 30 seconds each, and those of the broker with the lowest versions'
	@echo 'make check   ruff, mypy, import layers, changelog'
	@echo 'make picture draw docs/developer/rooms.svg anew, after imports have changed'
	@echo 'make schema  write anew what a start needs of the tables, after src/holdfast/storage/tables.py has changed'
	@echo 'make check-file FILE=src/holdfast/core/topics.py     ruff and mypy on this file'
	@echo 'make bench   benchmarks, beside mosquitto where installed; needs cc    (options: BENCH_ARGS="--quick")'
	@echo 'make faults  kill, fill, lock and damage for half an hour            (options: FAULTS_ARGS="--quick")'
	@echo 'make lock    write the lock files in requirements/ anew, with the newest packages'
	@echo 'make audit   look for known vulnerabilities in the locked packages; asks pypi.org'
	@echo 'make echarts build the library of the report'"'"'s charts anew from the packages in requirements/echarts; needs npm'
	@echo 'make compiled  the package in build/compiled, with the path of a message compiled; needs cc'
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

# The packages of the lock file, each with its hash: every machine tests with the same ones.
$(VENV)/locked: requirements/dev.txt | $(BIN)/pip
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

# setuptools is among them, so this needs no further download, and no second pip beside the first one.
DEV := $(VENV)/dev-$(LISTING)
$(DEV): $(VENV)/locked setup.cfg pyproject.toml
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=strict -e .
	@rm -f $(VENV)/installed-* $(VENV)/dev-*; touch $(INSTALLED) $@

# The packages of the broker's tests, a third of all, with the same versions.
$(VENV)/unit: requirements/unit.txt setup.cfg pyproject.toml | $(BIN)/pip
	$(BIN)/pip install -q --disable-pip-version-check --require-hashes -r requirements/unit.txt
	@touch $@

# As for $(DEV).
$(VENV)/unit-$(LISTING): $(VENV)/unit
	$(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --config-settings editable_mode=strict -e .
	@rm -f $(VENV)/unit-*; touch $@

run: $(INSTALLED)
	@exec $(BIN)/twistd -n --pidfile= holdfast $(ARGS)

# Postgres and NATS are among the packages of the tests.
cluster: $(DEV)
	@exec $(BIN)/python -m tests.cluster.trying

needs: $(DEV)
	@sh tests/needs.sh

# Only the tests that `make test` leaves out: the last -m prevails, and the first is in setup.cfg.
nightly: PYTEST_ARGS += -m nightly
nightly: needs
	$(TESTING) $(PYTEST) $(PYTEST_ARGS) $(or $(TESTS),tests)
	$(if $(TESTS),,$(MAKE) lowest PYTEST_ARGS=)

# The broker's stage with the lowest versions that setup.cfg allows, in an environment of its own.
LOWEST := build/lowest
lowest: $(DEV)
	rm -rf $(LOWEST)
	$(PYTHON) -m venv $(LOWEST)
	$(BIN)/uv pip install -q --python $(LOWEST)/bin/python --resolution lowest-direct -C editable_mode=strict -e '.[unit]'
	env -u PYTHONDONTWRITEBYTECODE $(LOWEST)/bin/python $(PYTEST) $(PYTEST_ARGS) $(broker)

# The broker's stage, or a part of it, without Spark, Java, a browser and mosquitto.
unit: $(VENV)/unit-$(LISTING)
	$(TESTING) $(if $(TESTS),-m pytest,$(PYTEST)) $(PYTEST_ARGS) $(or $(TESTS),$(broker))

ifdef TESTS
test: needs
	$(TESTING) $(PYTEST) $(PYTEST_ARGS) $(TESTS)
else
test:
	@for stage in $(STAGES); do $(MAKE) --no-print-directory test-$$stage || exit; done
endif

# Each stage leaves its results in build/tests-STAGE.xml.
test-broker: MEASURED = $(if $(COVERAGE),-m coverage run)
test-broker: $(DEV)
	rm -f .coverage .coverage.*
	$(TESTING) $(MEASURED) $(PYTEST) --junitxml=build/tests-broker.xml $(PYTEST_ARGS) $(broker)
	$(if $(COVERAGE),$(BIN)/python -m coverage combine -q)
	$(if $(COVERAGE),$(BIN)/python -m coverage report)

test-processes: $(if $(COMPILED),$(COMPILED_PACKAGE))
test-processes: TESTING := $(if $(COMPILED),PYTHONPATH=$(CURDIR)/build/compiled) $(TESTING)
test-pipeline test-processes: test-%: needs
	$(TESTING) $(PYTEST) --junitxml=build/tests-$*.xml $(PYTEST_ARGS) $($*)

lint: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(DEV)
	$(BIN)/mypy src migrations twisted/plugins/holdfast_plugin.py tests

layers: $(DEV)
	$(BIN)/lint-imports

changelog: $(DEV)
	$(BIN)/towncrier build --draft --version next > /dev/null

check: lint types layers changelog

picture: $(DEV)
	$(BIN)/python docs/developer/draw_rooms.py > docs/developer/rooms.svg

schema: $(DEV)
	$(BIN)/python docs/developer/write_schema.py

check-file: $(DEV)
	@test -n "$(FILE)" || { echo 'name the file: make check-file FILE=src/holdfast/core/topics.py' >&2; exit 1; }
	$(BIN)/ruff check $(FILE)
	$(BIN)/ruff format --check $(FILE)
	$(BIN)/mypy $(FILE)

bench: needs
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

faults: needs
	$(BIN)/python -m tests.faults $(FAULTS_ARGS)

# What `pip install` makes with the path of a message compiled, in a folder for PYTHONPATH. mypy may run beside it, so each
# has a cache of its own.
compiled: $(COMPILED_PACKAGE)
$(COMPILED_PACKAGE): $(SOURCES) setup.py setup.cfg | $(DEV)
	rm -rf build/compiled
	MYPY_CACHE_DIR=build/mypy HOLDFAST_COMPILE=1 $(BIN)/pip install -q --disable-pip-version-check --no-deps --no-build-isolation --target build/compiled .
	PYTHONPATH=build/compiled $(BIN)/python -c 'import sys; from holdfast.wire import parser; sys.exit(parser.__file__[-3:] != ".so")'
	@touch $@

wheel: $(DEV)
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

# Newer packages: review the difference, and test with it. `run.txt` is for the image, `dev.txt` for the tests, and
# `unit.txt` for those of the broker alone.
LOCK := compile -q --universal --python-version 3.11 --generate-hashes --no-annotate --no-header --no-emit-index-url
lock: $(DEV)
	$(BIN)/uv pip $(LOCK) --upgrade --extra postgres setup.cfg -o requirements/run.txt
	$(BIN)/uv pip $(LOCK) --upgrade --extra dev --extra postgres setup.cfg -o requirements/dev.txt
	$(BIN)/uv pip $(LOCK) --upgrade --extra unit -c requirements/dev.txt setup.cfg -o requirements/unit.txt

# The same packages make the same file: `git diff` shows nothing.
ECHARTS := src/holdfast_pipeline/report/static/vendor/echarts.js
echarts:
	rm -rf build/echarts
	mkdir -p build/echarts
	cp requirements/echarts/* build/echarts/
	cd build/echarts && npm ci --no-audit --no-fund --silent
	cd build/echarts && node_modules/.bin/esbuild echarts.mjs --bundle --minify --format=iife --global-name=echarts \
	  --target=es2022 --legal-comments=inline --log-level=warning --outfile=$(CURDIR)/$(ECHARTS)
	sha256sum $(ECHARTS)

audit: $(DEV)
	$(BIN)/python .ci/audit.py requirements/dev.txt

clean:
	rm -rf build dist benchmarks/load/build src/*.egg-info $(VENV)/installed-* $(VENV)/dev-* $(VENV)/locked $(VENV)/unit* .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
