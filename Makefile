# Two commands do it all on a fresh clone: `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# Tests start many processes, and each would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install test test-slow test-ci test-all coverage soak simulated bench peers lint format reproduce docs constraints dist dist-oldest clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable ".[all]"
	-$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > $(VENV)/compileall.txt  # on all cores, unlike pip
	touch $(STAMP)

test: install
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not slow and not grid"

# Tests that take long; `.ci/run` runs them too.
test-slow: install
	$(BIN)/python -m pytest -n auto --dist loadfile -m slow

# Both in one run, which keeps all cores busy.
test-ci: install
	$(BIN)/python -m pytest -n auto --dist loadfile -m "not grid"

# Everything, with all cases of the large grids.
test-all: install
	$(BIN)/python -m pytest -n auto --dist loadfile

MINUTES ?= 20
soak: install
	$(BIN)/python tests/federation/soak.py --minutes $(MINUTES)

# Replays one seed and tells what happened in words; without SEED runs seeds that follow from the commit for MINUTES.
# Many rounds, and whether memory stays flat: make simulated MEMORY=1 SEED=3 ROUNDS=3000
ROUNDS ?= 100
simulated: install
	$(BIN)/python tests/simulated --rounds $(ROUNDS) $(if $(MEMORY),$(or $(SEED),1) --memory,$(if $(SEED),$(SEED) --story,--minutes $(MINUTES) $(if $(BEGIN),--begin $(BEGIN))))

# It takes the packages of the Python that it finds first.
PYRIGHT := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/basedpyright

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYRIGHT)
	-@$(PYRIGHT) --verifytypes psofed --ignoreexternal > $(VENV)/verifytypes.txt
	@# Nobody imports the kernels' tables in psofed.engine; mypy infers their types.
	grep -q "Type completeness score" $(VENV)/verifytypes.txt
	! grep " error: " $(VENV)/verifytypes.txt | grep -v /psofed/engine/
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m benchmarks --write

# Needs the network and some gigabytes; PEERS="--torch-version 2.13.0+cpu" and other options are passed on.
peers: install
	$(BIN)/python -m benchmarks.peers --write-docs $(PEERS)

reproduce: install
	$(BIN)/psofed reproduce all --out out

docs: install
	$(BIN)/python docs/make_pages.py
	$(BIN)/python docs/run_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# The versions that a release was tested with.
constraints: install
	$(BIN)/python release/versions.py > release/constraints.txt

dist: install
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python release/check_wheel.py dist/*.whl --constraints release/constraints.txt

# The same on the oldest versions that pyproject.toml allows.
dist-oldest: dist
	$(BIN)/python release/versions.py --oldest > dist/oldest.txt
	$(BIN)/python release/check_wheel.py dist/*.whl --constraints dist/oldest.txt
	rm dist/oldest.txt

# A summary, and out/coverage/index.html; `make coverage TESTS=tests/unit` for a part of the tests.
TESTS ?= tests
coverage: install
	$(BIN)/python -m pytest -n auto --dist loadfile --cov --cov-report term --cov-report html $(TESTS)

clean:
	rm -rf $(VENV) out site dist .pages .mypy_cache .ruff_cache .hypothesis
