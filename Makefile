# Two commands do it all on a fresh clone: `make reproduce` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: install test soak liars bench lint format reproduce docs dist clean

install: $(STAMP)

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[all]"
	touch $(STAMP)

test: install
	$(BIN)/python -m pytest -n auto --dist loadfile

MINUTES ?= 20
soak: install
	$(BIN)/python tests/federation/soak.py --minutes $(MINUTES)

liars: install
	$(BIN)/python tests/federation/liars.py

# It takes the packages of the Python that it finds first.
PYRIGHT := PATH="$(abspath $(BIN)):$$PATH" $(BIN)/basedpyright

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(PYRIGHT)
	$(PYRIGHT) --verifytypes psofed --ignoreexternal > $(VENV)/verifytypes.txt \
		|| { cat $(VENV)/verifytypes.txt; exit 1; }
	$(BIN)/lint-imports

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: install
	$(BIN)/python -m benchmarks

reproduce: install
	$(BIN)/psofed reproduce all --out out

docs: install
	$(BIN)/python docs/make_pages.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

dist: install
	rm -rf dist
	$(BIN)/python -m build --quiet
	$(BIN)/python release/check_wheel.py dist/*.whl

clean:
	rm -rf $(VENV) out site dist .mypy_cache .ruff_cache .hypothesis
