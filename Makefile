# Everything runs in .venv, which is created from PyPI alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup format check kernels unit test test-slow docs demo demo-small bench clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tamis needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# uv installs the same from PyPI; pip stands in where uv cannot.
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv && \
	  $(BIN)/uv pip install --quiet --python $(BIN)/python --compile-bytecode --editable '.[dev]' || \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

setup: $(READY) ## Create .venv with Tamis and its development tools

format: $(READY) ## Format the code and apply automatic fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(READY) ## Check formatting, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

kernels: $(READY) ## Compile modules and the engine's kernels once, so that the test processes need not
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -c 'from tamis.matching import load_kernels; load_kernels()'

unit: kernels ## Run the default tests
	@# Where bytecode is not to be written, every process would rewrite every module of tests anew.
	PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q -n 3 --dist worksteal

test: $(READY) ## Run everything CI runs, checks and tests side by side
	@$(MAKE) --no-print-directory --jobs 2 check unit

test-slow: $(READY) ## Run the long tests: millions of random pairs, real servers, site build
	$(BIN)/pytest -q -m slow -s tests

docs: $(READY) ## Build the documentation as a site, with search, in site/
	$(BIN)/python -m zensical build --clean --strict
	@echo "To read it: $(BIN)/python -m http.server --directory site"

demo: $(READY) ## Generate, compile, match and report market data on Spark
	@echo "100,000 subscriptions and 2,000,000 events of a market, from nothing to a report:"
	@$(BIN)/python examples/market-spark/demo.py

demo-small: $(READY) ## Match a small market feed against a few subscriptions
	@echo "A feed of trades, quotes and news (examples/market/events.jsonl) meets 22 subscriptions"
	@echo "(examples/market/subscriptions.txt). Which subscriptions does each event satisfy?"
	@$(BIN)/tamis match --filters examples/market/subscriptions.txt \
	  --schema examples/market/schema.json --format table examples/market/events.jsonl
	@echo
	@echo "Filters can be compared too, and events show the difference:"
	@echo
	@$(BIN)/tamis compare --schema examples/market/schema.json \
	  'symbol = "ACME" and price < 50' 'symbol starts with "A"'

BENCHMARKS := imports parsing relations covering sigma paper boolean conjunctions growth churn building storage overlay queries broker spark

bench: $(READY) ## Run the benchmarks and write their tables and plots
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name; done

clean: ## Remove build output and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache dist site
	find src benchmarks -name '*.nb[ic]' -delete
