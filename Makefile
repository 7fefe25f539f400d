# The front door. Everything lives in .venv in this clone; each target installs what it needs and no more.
#   make run     name server and broker in one process, ready in under a minute on a fresh machine
#   make test    everything that must pass, `make check` included
#   make check   format, lint, types, layers
#   make test-spark  the part of it that needs Spark and Java: one session for all
#   make bench   CPU per message beside a bare loop and, with Maven, beside the original
#   make bench-spark  rows per CPU second into and out of Spark, beside Parquet
#   make compat  programs with unmodified clients, on ours and on an original 4.9.7 (part of `make test`)
#   make fuzz    the long form of the fuzz programme (CI runs a short one inside `make test`)
#   make torture  the long forms of the programmes: model, crash states, damage, cuts, full disks (hours)
#   make kills   a broker under load is killed KILLS times (2500: hours), and every promise checked
#   make kills-spark  driver, workers, executors, broker and batch writes of a Spark pipeline are killed SPARK_KILLS times
#                each (200: hours); a backlog of SPARK_BACKLOG messages is read
#   make exchange  a store folder changes hands with the original broker, 20 rounds with kills
#   make spark-archive  Spark's classes parsed once for all (190 MB in the user's cache): tests start quicker
#   make lock    pin the newest versions that pyproject.toml allows
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
DATA ?= data
FUZZ_EXAMPLES ?= 200000
EXCHANGE_ROUNDS ?= 20
KILLS ?= 2500
SPARK_KILLS ?= 200
SPARK_BACKLOG ?= 1000000
# Most tests wait for others (brokers, clients, clocks), so more of them run at once than there are cores; one worker has
# all of Spark's (tests/spread.py). What fails beside others is run once more alone: a defect fails again, an original
# broker that was late for its judge does not. Tests with the marker `once` fail in that run, too: their seeds are new.
WORKERS ?= 4
PYTEST := $(BIN)/python -m pytest
AGAIN := ORBITMQ_SECOND_RUN=1 $(PYTEST)
FAILED := --last-failed --last-failed-no-failures none

# A run of the tests starts a thousand processes: none of them need compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup run test test-others test-spark check format bench bench-spark compat demo fuzz torture kills kills-spark \
  exchange docs spark-archive lock clean
.DEFAULT_GOAL := run

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# The markers remember which lock file was installed last.
$(VENV)/.run: $(BIN)/python requirements/run.txt requirements/build.txt pyproject.toml
	$(PIP) install --require-hashes -r requirements/build.txt
	$(PIP) install --require-hashes -r requirements/run.txt
	$(PIP) install --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@

setup: $(VENV)/.dev

run: $(VENV)/.run
	$(BIN)/orbitmq up --data-dir $(DATA)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Spark's classes are parsed for all its tests at once, while the linters use the other core.
test: $(VENV)/.dev
	$(MAKE) --jobs 2 check $(if $(shell which java),spark-archive)
	$(PYTEST) -n $(WORKERS) --dist loadfile || $(AGAIN) $(FAILED)

# The parts of it: all that needs no Spark, and Spark alone, in one process. What each remembers of failures is its own.
test-others: OTHERS := -o cache_dir=.pytest_cache/others --ignore tests/spark
test-others: $(VENV)/.dev
	$(PYTEST) $(OTHERS) -n $(WORKERS) --dist loadfile || $(AGAIN) $(OTHERS) $(FAILED)

test-spark: SPARK := -o cache_dir=.pytest_cache/spark tests/spark
test-spark: $(VENV)/.dev
	$(PYTEST) $(SPARK) || $(AGAIN) $(SPARK) $(FAILED)

spark-archive: $(VENV)/.dev
	$(BIN)/python -m orbitmq.spark.make_archive

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

bench-spark: $(VENV)/.dev
	$(BIN)/python -m benchmarks.spark

compat: $(VENV)/.dev
	$(BIN)/python -m pytest -m compat tests/foreign tests/spark

fuzz: $(VENV)/.dev
	ORBITMQ_FUZZ_EXAMPLES=$(FUZZ_EXAMPLES) $(BIN)/python -m pytest tests/fuzz --timeout 3600

torture: $(VENV)/.dev
	ORBITMQ_TORTURE=long $(BIN)/python -m pytest tests/store tests/broker tests/reliability \
	  -m torture -s

kills: $(VENV)/.dev
	ORBITMQ_KILLS=$(KILLS) $(BIN)/python -m pytest -s tests/reliability/test_kills.py -k many_kills

kills-spark: $(VENV)/.dev
	ORBITMQ_T16_KILLS=$(SPARK_KILLS) ORBITMQ_T16_BACKLOG=$(SPARK_BACKLOG) $(BIN)/python -m pytest -s \
	  tests/spark/test_pipeline_kills.py tests/spark/test_backlog.py

exchange: $(VENV)/.dev
	ORBITMQ_EXCHANGE_ROUNDS=$(EXCHANGE_ROUNDS) $(BIN)/python -m pytest -s \
	  tests/foreign/test_store_originals.py -k changes_hands

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
	$(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate --extra fast pyproject.toml -o requirements/run.txt
	$(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate --extra dev pyproject.toml -o requirements/dev.txt
	echo 'setuptools>=77' | $(BIN)/uv pip compile -q --upgrade --generate-hashes --no-header --no-annotate - -o requirements/build.txt

clean:
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache
