# Everything runs in .venv, which is made on first use and refreshed when what it is made from changes.

PYTHON ?= python3
VENV   ?= .venv
KAFKA  ?=
BENCH  ?=
FUZZ   ?=
MUTANT ?=
# With LOCKED=1 an environment is made of the versions in requirements-dev.lock, on which the suite passed.
LOCKED ?=
# With RELEASE=1, make dist refuses what nobody has filled in yet.
RELEASE ?=
# Another PySpark than the installed one: by default the oldest that works. MARK chooses tests.
SPARK  ?=
MARK   ?= spark and not slow
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet install$(if $(LOCKED), --constraint requirements-dev.lock)

# Tests start thousands of processes, each of which would compile this package anew.
unexport PYTHONDONTWRITEBYTECODE

# gssapi is built from source, with what libkrb5-dev brings; without it the tests of Kerberos are skipped.
COMMA  := ,
EXTRAS := dev$(if $(shell command -v krb5-config),$(COMMA)gssapi)

SOURCES_OF_INSTALL := pyproject.toml setup.py $(wildcard kafka_actors/*/_*.pyx kafka_actors/*/_*.pxi kafka_actors/*/_*.h)

# Tests that share what takes long to start (Ray and three brokers, Spark) run in one process: see tests/xdist_groups.py. Three
# processes on two cores, because most of these tests wait for brokers and for processes more than they compute.
GROUPS := -n 3 --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo demo-spark docs test test-slow test-unit test-spark test-helm test-image lint format bench bench-check fuzz mutants soak ledger simulate loads differential docs-options docs-values docs-dashboard docs-pictures java-answers dist lock clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## */\1|/' | awk -F'|' '{printf "  make %-13s %s\n", $$1, $$2}'

demo: $(VENV)/.installed-demo  ## the main job on an embedded broker; KAFKA=host:port for a real one
	$(BIN)/kafka-actors demo $(if $(KAFKA),--kafka $(KAFKA))

demo-spark: $(VENV)/.installed-demo-spark  ## one pipeline on Spark and on Ray, results compared; needs Java 17; KAFKA=host:port too
	@command -v java > /dev/null || { echo "Spark needs Java 17: apt-get install openjdk-17-jdk-headless, or brew install openjdk@17"; exit 1; }
	$(if $(KAFKA),BOOTSTRAP=$(KAFKA) )$(BIN)/python examples/revenue_pipeline.py

test: lint  ## lint, then all tests but the slow ones; needs Java 17 and Maven for real Kafka, Go for Helm
	$(BIN)/python -m pytest tests/unit tests/property -n 2 --dist worksteal -q -m "not slow"
	$(BIN)/python tests/helm/tools.py
	$(BIN)/python -m kafka_actors.testing.spark > /dev/null
	$(BIN)/python tests/spark_home.py
	$(BIN)/python -m pytest tests/integration tests/helm -m "not slow" $(GROUPS)

# The longest tests are longer with KAFKA_ACTORS_TEST_KILLS=2000, KAFKA_ACTORS_TEST_IDLE_S=3600, KAFKA_ACTORS_TEST_SASL_S=600.
test-slow: lint  ## all tests: every fault, every long run
	$(BIN)/python -m pytest tests/unit tests/property -n 2 --dist worksteal -q
	$(MAKE) java-answers
	git diff --exit-code --stat -- tests/java/answers
	$(BIN)/python -m pytest tests/integration --kafka=both
	$(MAKE) test-spark
	$(MAKE) test-spark SPARK=4.2.0
	$(MAKE) test-helm
	$(MAKE) test-image

test-unit: $(VENV)/.installed-dev  ## the tests that need nothing but Python
	$(BIN)/python -m pytest tests/unit tests/property -n 2 --dist worksteal -q -m "not slow"

test-spark: $(VENV)/.installed-dev  ## the tests of Spark with another PySpark, which is fetched at first (400 MB): SPARK=4.2.0
	spark="$$($(BIN)/python -m kafka_actors.testing.spark $(SPARK))" && \
	  PYTHONPATH="$$spark$${PYTHONPATH:+:$$PYTHONPATH}" $(BIN)/python -m pytest tests/integration -m "$(MARK)"

test-helm: $(VENV)/.installed-dev  ## the Helm chart; at first Helm and kubeconform are built, with Go, for minutes
	$(BIN)/python tests/helm/tools.py
	$(BIN)/python -m pytest tests/helm -m "not slow" -n 2 -q -rs

test-image: $(VENV)/.installed-dev  ## the image of the Dockerfile, built and run; root, buildah, mmdebstrap and bubblewrap
	$(BIN)/python tests/helm/tools.py
	$(BIN)/python -m pytest tests/helm -m slow -q -rs

lint: $(VENV)/.installed-dev  ## style, types, who may import whom, and the ratchets
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/unit/test_house.py

format: $(VENV)/.installed-dev  ## put the sources into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed-dev  ## benchmarks, for hours; BENCH="name …" for some, BENCH=--quick for a smoke run
	$(BIN)/python -m benchmarks $(BENCH)

bench-check: $(VENV)/.installed-dev  ## what of the latest benchmarks fell behind the committed baseline
	$(BIN)/python -m benchmarks check

fuzz: $(VENV)/.installed-fuzz  ## coverage-guided fuzzing of all that reads foreign bytes; FUZZ=name SECONDS=60
	$(BIN)/python tests/fuzz.py $(FUZZ) --seconds $(or $(SECONDS),60)

soak: $(VENV)/.installed-dev  ## producers and readers on real brokers under faults at random, and a check of all they did; MINUTES=10 SEED=… PAUSE=0.1
	PYTHONPATH=tests $(BIN)/python -m histories.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED)) $(if $(PAUSE),--pause $(PAUSE))

ledger: $(VENV)/.installed-dev  ## a job that delivers exactly once under kills and stops at random, and a check of all results; FAULTS=200 SEED=…
	KAFKA_ACTORS_TEST_CRASHES=$(or $(FAULTS),200) KAFKA_ACTORS_TEST_SEED=$(or $(SEED),19) \
	$(BIN)/python -m pytest tests/integration/test_job_exactly_once.py -k many_times -m slow -s -q

simulate: $(VENV)/.installed-dev  ## groups of clients in simulated time, under faults that a seed makes; SEEDS=10000 FIRST=0 SCENARIO=group
	PYTHONPATH=tests $(BIN)/python -m simulation.run --seeds $(or $(SEEDS),1000) --first $(or $(FIRST),0) $(if $(SCENARIO),--scenario $(SCENARIO))

loads: $(VENV)/.installed-dev  ## 5,000 partitions, 200 topics, large records, 100 rebalances, and what is left of each; LOAD=group PARTITIONS=5000 WORKERS=4 KAFKA=host:port
	PYTHONPATH=tests $(BIN)/python -m loads.heavy $(LOAD) --partitions $(or $(PARTITIONS),5000) --workers $(or $(WORKERS),4) $(if $(KAFKA),--kafka $(KAFKA))

differential: $(VENV)/.installed-dev  ## FakeKafka against a real broker with the same random requests; SEEDS=1000 FIRST=0 KAFKA=3.9.2 LEVEL=1 of transaction.version
	KAFKA_ACTORS_TEST_SEEDS=$(or $(SEEDS),300) KAFKA_ACTORS_TEST_FIRST_SEED=$(or $(FIRST),0) \
	  $(if $(KAFKA),KAFKA_ACTORS_TEST_KAFKA=$(KAFKA)) $(if $(LEVEL),KAFKA_ACTORS_TEST_TRANSACTION_VERSION=$(LEVEL)) \
	  $(BIN)/python -m pytest tests/integration/test_fake_kafka_differential.py -q --timeout=0

java-answers: $(VENV)/.installed-dev  ## what Kafka's own classes say to the tests of protocol, assignors and options, asked anew
	JAVA_ANSWERS=record $(BIN)/python -m pytest tests/integration/test_protocol_java.py tests/integration/test_assignors_java.py tests/integration/test_options_java.py -q

docs: $(VENV)/.installed-docs  ## the documentation as a site, in build/docs; a dead link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "open build/docs/index.html; or, for its search: $(BIN)/python -m http.server --directory build/docs"

mutants: $(VENV)/.installed-dev  ## takes guards out one at a time: each has to make its test fail; MUTANT="name …" for some
	$(BIN)/python tests/mutants.py $(MUTANT)

docs-options: $(VENV)/.installed-dev  ## docs/reference/options.md anew, from the declarations
	$(BIN)/kafka-actors config options --output markdown > docs/reference/options.md

docs-values: $(VENV)/.installed-dev  ## the table of values in the chart's README anew, from values.yaml
	$(BIN)/python tests/helm/values_page.py

docs-dashboard: $(VENV)/.installed-dev  ## the chart's dashboard for Grafana anew, from its panels
	$(BIN)/python tests/helm/dashboard.py

docs-pictures: $(VENV)/.installed-dev  ## the pictures of the status page, of run and of top anew, from a real run; needs Chromium
	$(BIN)/python tests/pictures.py

dist: $(VENV)/.installed-dist  ## sdist, wheel and SBOM into dist/, checked and tried in new environments; RELEASE=1 before publishing
	$(BIN)/python -u tests/release.py $(if $(RELEASE),--release)

lock: $(VENV)/.installed-dist  ## requirements-dev.lock anew: the newest versions of all that development needs
	$(BIN)/uv pip compile pyproject.toml --extra dev --extra dist --universal --python-version 3.11 --upgrade --quiet \
	  --no-annotate --no-emit-index-url --custom-compile-command "make lock" --output-file requirements-dev.lock

clean:  ## remove the environment and all that was built
	rm -rf $(VENV) .fuzz build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f kafka_actors/*/_*.so kafka_actors/records/_kernel.c kafka_actors/schemas/_*_kernel.c kafka_actors/fetch/_fetch_loop.c

$(BIN)/python:
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"kafka-actors needs Python 3.11 or later; $(PYTHON) is {v[0]}.{v[1]}. Name another one: make PYTHON=python3.12 …")'
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no environment could be made: on Debian and Ubuntu, apt-get install python3-venv"; exit 1; }

$(VENV)/.installed-demo: $(SOURCES_OF_INSTALL) | $(BIN)/python
	@echo "installing kafka-actors and what it needs into $(VENV) …"
	$(PIP) --editable '.[ray,testing]'
	@touch $@

$(VENV)/.installed-demo-spark: $(VENV)/.installed-demo
	$(PIP) --editable '.[ray,spark,testing]'
	@touch $@

$(VENV)/.installed-dev: $(SOURCES_OF_INSTALL) | $(BIN)/python
	@echo "installing kafka-actors and its development tools into $(VENV) …"
	$(PIP) --editable '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.installed-demo $(VENV)/.installed-demo-spark $(VENV)/.installed-docs

$(VENV)/.installed-docs: $(SOURCES_OF_INSTALL) | $(BIN)/python
	@echo "installing what makes the documentation into $(VENV) …"
	$(PIP) --editable '.[docs]'
	@touch $@

$(VENV)/.installed-dist: $(SOURCES_OF_INSTALL) | $(BIN)/python
	$(PIP) --editable '.[dist]'
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed-dev
	$(PIP) --editable '.[fuzz]'
	@touch $@
