# lakebed. `make demo` and `make test` need Python >= 3.11 and a JDK 17 or 21; they make their own environment.
# Another PySpark: `make test SPARK=4.3.0` (its Spark layer and Spark Connect, in an environment of its own).

FLOOR := 4.1.4
SPARK ?= $(FLOOR)
VENV ?= .venvs/spark-$(SPARK)
PY := $(VENV)/bin/python
INSTALLED := $(VENV)/.installed
CHECKS := $(VENV)/.checks
SITE := $(VENV)/.site
LAYERS := tools/test-layers $(PY)
# Of 13,000 modules of the packages a run imports a part: they are compiled at their first import, not as they come.
PIP := --disable-pip-version-check --no-compile
# Where it is set, each process of the tests compiles all sources anew: two seconds of CPU.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help environment demo demo-streaming demo-vectors demo-doors test test-rest test-day test-full unit property fault docs-test spark services interop golden lint contracts format types docs bench wheel api released test-matrix oracle clean
.DEFAULT_GOAL := help

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(VENV)/.packages: locks/test.txt
	@echo "makes $(VENV): PySpark and what the tests need, some minutes" >&2
	@python=$${PYTHON:-$$(tools/find-python)} && test -n "$$python" && "$$python" -m venv --clear $(VENV)
	$(PY) -m pip install $(PIP) --progress-bar off -r locks/test.txt pyspark==$(SPARK)
	@touch $@

$(INSTALLED): $(VENV)/.packages pyproject.toml
	$(PY) -m pip install $(PIP) --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(CHECKS): $(INSTALLED) locks/check.txt
	$(PY) -m pip install $(PIP) --quiet -r locks/check.txt
	@touch $@

$(SITE): $(INSTALLED) locks/docs.txt
	$(PY) -m pip install $(PIP) --quiet -r locks/docs.txt
	@touch $@

environment: $(CHECKS) $(SITE) ## all packages that the other targets need

demo: $(INSTALLED) ## a year of flights through a table, checked against a straight computation
	@tools/find-java
	@PYTHONPATH=examples $(PY) -m year_of_flights

demo-streaming: $(INSTALLED) ## two months of them as a stream from Kafka through bronze, silver and gold; the whole year: ARGS='--days 365'
	@PYTHONPATH=examples $(PY) -m flight_stream $(ARGS)

demo-vectors: $(INSTALLED) ## the topics of Python's manual as vectors, and those that are nearest to questions
	@PYTHONPATH=examples $(PY) -m nearest_texts

demo-doors: $(INSTALLED) ## one warehouse of flights, read by DuckDB, polars, pyiceberg, pandas and Spark SQL with equal sums
	@tools/find-java
	@PYTHONPATH=examples $(PY) -m open_doors

ifeq ($(SPARK),$(FLOOR))
LAYER ?= plain spark services interop
else
LAYER ?= spark connect
endif

test: $(INSTALLED) ## each feature once, in every layer, some ten minutes; one of them: make test LAYER=spark
	@tools/find-java
	@LAKEBED_TESTS=small $(LAYERS) $(LAYER)

test-rest: $(INSTALLED) ## the other cases of these tests; CI runs those of the layer plain
	@tools/find-java
	@LAKEBED_TESTS=rest $(LAYERS) $(LAYER)

test-day: $(INSTALLED) ## all tests, with today's part of the large sets: another one each day
	@tools/find-java
	@LAKEBED_TESTS=day $(LAYERS) $(LAYER)

test-full: $(INSTALLED) ## all tests, with the large sets as a whole: hours; a part of it: make test-full LAYER=interop
	@tools/find-java
	@LAKEBED_TESTS=full $(LAYERS) $(LAYER)

unit: $(INSTALLED) ## codecs, rules and planning, no Spark
	@$(LAYERS) unit

property: $(INSTALLED) ## random histories against a dict
	@$(LAYERS) property

fault: $(INSTALLED) ## every storage mutation as a crash point
	@$(LAYERS) fault

docs-test: $(INSTALLED) ## every example of README, docs and docstrings
	@$(LAYERS) docs

spark: $(INSTALLED) ## the Spark engine
	@tools/find-java
	@$(LAYERS) spark

services: $(INSTALLED) ## S3 and HDFS servers, a Spark cluster, Spark Connect
	@tools/find-java
	@$(LAYERS) services

interop: $(INSTALLED) ## golden tables and real Hudi, both ways
	@tools/find-java
	@$(LAYERS) interop

golden: $(INSTALLED) ## golden tables that are not in tests/golden: make golden GOLDEN=<folder of the larger set>
	@tools/find-java
	@test -f "$(GOLDEN)/manifest.json" || { echo "GOLDEN=<folder>: there is no manifest.json in '$(GOLDEN)'" >&2; exit 2; }
	@LAKEBED_GOLDEN=$(abspath $(GOLDEN)) $(LAYERS) golden

lint: $(CHECKS) ## ruff: rules and format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

contracts: $(CHECKS) ## imports go downward; dependencies are declared
	$(VENV)/bin/lint-imports
	$(VENV)/bin/deptry .

format: $(CHECKS) ## ruff, writing
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

types: $(CHECKS) $(SITE) ## pyright, strict; of bench/ only whether what it uses is there
	$(VENV)/bin/pyright --pythonpath $(PY)
	$(VENV)/bin/pyright -p bench --pythonpath $(PY)

docs: $(SITE) ## the pages that are made from code, and the documentation site in site/; a broken link fails
	$(PY) tools/reference_pages.py docs
	NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet

api: $(INSTALLED) ## the public surface as a text, tests/unit/public_api/surface.txt
	$(PY) tools/public_api.py tests/unit/public_api/surface.txt

released: api ## note the public surface as that of a release
	cp tests/unit/public_api/surface.txt tests/unit/public_api/released.txt

.venvs/%/.packages: locks/%.txt
	@python=$${PYTHON:-$$(tools/find-python)} && test -n "$$python" && "$$python" -m venv --clear .venvs/$*
	.venvs/$*/bin/python -m pip install --quiet --disable-pip-version-check -r locks/$*.txt
	@touch $@

bench: $(INSTALLED) .venvs/bench/.packages .venvs/bench-paimon/.packages ## lakebed beside Hudi, Delta, Iceberg, Lance and Paimon: docs/benchmarks.md; some sides: ARGS='--only lance'
	@tools/find-java
	$(PY) bench/page.py --peers .venvs/bench/bin/python --paimon .venvs/bench-paimon/bin/python $(ARGS)
	$(PY) bench/rounds.py --peers .venvs/bench/bin/python
	$(PY) bench/benchmarks_page.py

wheel: .venvs/wheel/.packages ## dist/lakebed-*.whl and dist/lakebed-*.tar.gz; two builds of one commit have the same bytes
	rm -rf dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) .venvs/wheel/bin/python -m hatchling build -d dist

test-matrix: wheel ## the wheel in clean environments: each Python of 3.11 to 3.13, without PySpark and with 4.1, 4.2, 4.3
	@tools/test-matrix

oracle: $(INSTALLED) ## fetch the oracle's environment and the Hudi bundle into the cache
	@$(PY) tests/oracle/environment.py

clean: ## environments and what was built
	rm -rf .venvs dist build site
