# The front door. Everything lives in .venv in this clone; each target installs what it needs and no more.
#   make run     name server and broker in one process, ready in under a minute on a fresh machine
#   make test    everything that must pass, `make check` included: a quarter of an hour on two cores
#   make check   format, lint, layers, types, those of the documentation's programs too
#   make test-spark  the part of the tests that needs Spark and Java
#   make test-plain  the tests of the core and of its ways in with the plain core, part of `make test`
#   make test-newest  a choice of unit tests on the newest Python that is installed, part of `make test`
#   make nightly  the long programmes, one part after the other: nightly-originals, nightly-clients, nightly-exchange,
#                nightly-kills, nightly-spark, nightly-core, nightly-bench, nightly-fuzz, nightly-torture
#                (docs/internals/testing.md); KILLS, SPARK_KILLS, SPARK_BACKLOG, EXCHANGE_ROUNDS, FUZZ_EXAMPLES say how long
#   make records  what originals answer is put on record anew
#   make bench   CPU per message beside a bare C server, Redis and NATS where installed and, with Maven, the original
#   make bench-spark  rows per CPU second into and out of Spark, beside Parquet
#   make spark-archive  Spark's classes parsed once for all (190 MB in the user's cache): tests start quicker
#   make lock    pin the newest versions that pyproject.toml allows
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
DATA ?= data
NAMESRV_PORT ?= 9876
BROKER_PORT ?= 10911
FUZZ_EXAMPLES ?= 20000
EXCHANGE_ROUNDS ?= 20
KILLS ?= 300
SPARK_KILLS ?= 10
SPARK_BACKLOG ?= 100000
TORTURE ?= long
export FUZZ_EXAMPLES EXCHANGE_ROUNDS KILLS SPARK_KILLS SPARK_BACKLOG TORTURE
PARTS := originals clients exchange kills spark core bench fuzz torture
RUN_TESTS := $(BIN)/python -m tests.whole_run

# A run of the tests starts a thousand processes: none of them need compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-plain test-newest test-spark check format bench bench-spark demo nightly $(PARTS:%=nightly-%) \
  records docs spark-archive lock clean
.DEFAULT_GOAL := run

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The markers remember which lock file was installed last.
CORE := $(wildcard src/orbitmq/core/*.pyx src/orbitmq/core/*.h src/orbitmq/core/compiled_parts/*.pxi)
$(VENV)/.run: $(BIN)/python requirements/run.txt requirements/build.txt pyproject.toml setup.py $(CORE)
	@echo "installing what the broker needs into $(VENV)" >&2
	$(PIP) install --require-hashes -r requirements/build.txt
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	@echo "installing everything else into $(VENV): Spark, tests, linters; this takes minutes" >&2
	$(BIN)/python -m pip --disable-pip-version-check install --require-hashes -r requirements/dev.txt
	@touch $@

setup: $(VENV)/.dev

run: $(VENV)/.run
	$(BIN)/orbitmq up --data-dir $(DATA) --namesrv-port $(NAMESRV_PORT) --broker-port $(BROKER_PORT)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.docs.typed_programs
	$(BIN)/lint-imports --no-cache

# Spark's classes are parsed for all its tests at once, while the linters use the other core.
test: $(VENV)/.dev
	$(MAKE) --jobs 2 check test-plain test-newest $(if $(shell which java),spark-archive)
	$(RUN_TESTS)

test-newest: $(VENV)/.dev
	$(BIN)/python -m tests.newest

test-spark: $(VENV)/.dev
	$(RUN_TESTS) tests/spark

# What the core carries, with the plain core instead of the compiled one.
test-plain: $(VENV)/.dev
	ORBITMQ_CORE=plain $(RUN_TESTS) --name test-plain --workers 2 tests/core tests/behaviour tests/broker/test_ways_in.py

$(PARTS:%=nightly-%): nightly-%: $(VENV)/.dev
	$(RUN_TESTS) --part $*

# What originals answer is put on record (tests/golden/originals): after a program that asks them was changed.
records: export ORBITMQ_RECORD = 1
records: $(VENV)/.dev
	$(RUN_TESTS) --part originals

nightly: $(VENV)/.dev
	$(RUN_TESTS) --parts

spark-archive: $(VENV)/.dev
	$(BIN)/python -m orbitmq.spark.make_archive

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

bench-spark: $(VENV)/.dev
	$(BIN)/python -m benchmarks.spark

docs: $(VENV)/.dev
	$(BIN)/python -m tools.behaviours_page
	$(BIN)/python -m tools.settings_page
	$(BIN)/python -m tools.commands_page
	$(BIN)/python -m tools.metrics_page
	$(BIN)/python -m tools.requests_page
	$(BIN)/python -m tools.client_page
	$(BIN)/python -m tools.spark_page

demo:
	@echo "make demo: the order stream into Spark does not exist yet; it comes with the Spark pipeline." >&2; exit 1

lock: $(VENV)/.dev
	$(PIP) install uv
	$(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate --extra fast --extra server pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate --extra dev pyproject.toml -o requirements/dev.txt
	printf 'cython>=3.1\nsetuptools>=77\n' | $(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate - -o requirements/build.txt

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
