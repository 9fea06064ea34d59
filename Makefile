# The two commands a newcomer needs are `make demo` and `make test`; both set up what is missing.

SHELL := /bin/bash
PY := .venv/bin/python
BIN := .venv/bin

# One thread per process: the tests run several processes, and timings must not depend on the pool.
export OMP_NUM_THREADS ?= 1
export NO_MKDOCS_2_WARNING := 1

.PHONY: demo test test-fast test-slow lint format docs size bench browser clean

demo: .venv/.installed
	$(PY) examples/demo.py --out out

# Processes that talk over gloo and browsers are not run two at a time, hence the second run.
test: lint docs size browser
	$(PY) -m pytest -n 2 -m "not slow and not dist and not browser" && \
	$(PY) -m pytest -m "(dist or browser) and not slow"

test-fast: .venv/.installed
	$(PY) -m pytest -n 2 -m "not slow and not dist and not browser"

test-slow: .venv/.installed browser
	$(PY) -m pytest -m slow --timeout 1800

lint: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/.installed
	$(BIN)/mkdocs build --strict --quiet

size: .venv/.installed
	$(PY) scripts/size.py

bench: .venv/.installed
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(PY) -m benchmarks.$$(basename $$file .py); done

browser:
	@scripts/chromium.sh

clean:
	rm -rf out site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

.venv/.installed: pyproject.toml constraints/cpu.txt scripts/setup.sh
	scripts/setup.sh
	@touch $@
