# Everything here runs in a virtual environment of its own; all it needs is python3 (3.11 or newer) and a package index.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# modules are compiled once, not by each of the many processes that tests start
export PYTHONDONTWRITEBYTECODE :=

# one thread of linear algebra in each of three processes: more would wait for each other
TESTS := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n 3 --dist worksteal
TYPES := $(VENV)/types.txt

.PHONY: demo test test-all check lint format fuzz bench clean
demo: $(READY)  ## a whole job: ten clients, real digits, four of them dishonest
	$(BIN)/truthfl run

test: lint  ## ruff, mypy, and the tests that take minutes together; mypy works beside them, its words come after
	@$(BIN)/mypy >$(TYPES) 2>&1 & types=$$!; trap 'kill $$types' INT TERM; \
	echo '$(TESTS) -m "not long"'; $(TESTS) -m "not long"; tests=$$?; \
	wait $$types; types=$$?; echo "$(BIN)/mypy"; cat $(TYPES); exit $$((tests ? tests : types))

test-all: check  ## all tests, the long ones too, and all attacks on a real federation
	$(TESTS)
	$(BIN)/python scripts/attack.py

check: lint  ## ruff and mypy
	$(BIN)/mypy

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(READY)  ## let ruff lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

fuzz: $(READY)  ## the property tests, at length and with new random examples
	$(BIN)/python -m pytest -n 2 -m properties --hypothesis-profile fuzz

bench: $(READY)  ## how fast
	$(BIN)/python -m benchmarks.million_clients

clean:
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "truthfl needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=python3.11 or later.")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --no-compile --editable '.[dev]'
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests|pandas|mypyc?|pip|setuptools)/' src $(VENV)/lib || true  # by all cores; pip would use one
	@touch $@
