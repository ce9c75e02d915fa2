# Everything runs in .venv, which is created from PyPI alone.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
BASE := $(VENV)/.base
READY := $(VENV)/.ready
VERSIONS := $(VENV)/versions.txt
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --constraint $(VERSIONS)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# Modules are compiled when something first imports them: of all that is installed, a third is.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup format check kernels engine-kernels covering-kernels rewritten unit test test-slow docs demo demo-small bench clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

# First what Tamis itself needs, so that kernels are compiled while the tools are installed.
$(BASE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Tamis needs Python 3.11 or newer: run 'make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)'."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# uv installs the same from PyPI; pip stands in where uv cannot.
	$(PIP) uv && \
	  $(BIN)/uv pip compile --quiet --python $(BIN)/python --extra dev --output-file $(VERSIONS) pyproject.toml && \
	  $(INSTALL) --editable . || $(PIP) --editable '.[dev]'
	@touch $@

$(READY): $(BASE)
	$(INSTALL) --editable '.[dev]' || $(PIP) --editable '.[dev]'
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

kernels: engine-kernels covering-kernels ## Compile modules and kernels once, so that the test processes need not

# The last of these kernels are those of the covering index, which are compiled by then.
engine-kernels: $(BASE)
	@$(BIN)/python -m compileall -q src
	@$(BIN)/python -c 'from tamis.matching import load_kernels; load_kernels()'

covering-kernels: $(BASE)
	@$(BIN)/python -c 'from tamis.covering.warming import use_covering_kernels as use; use()' 2>/dev/null

# Otherwise every process would rewrite every module of tests, for pytest's assertions. If modules
# cannot be collected, the tests say so.
rewritten: $(READY)
	@$(BIN)/pytest -q -p no:cacheprovider --collect-only >/dev/null 2>&1 || true

# Each process costs some ten seconds of processor time: it collects the tests, and loads kernels.
unit: kernels rewritten ## Run the default tests
	$(BIN)/pytest -q -n 3 --no-loadscope-reorder

test: ## Run everything CI runs, checks and tests side by side
	@$(MAKE) --no-print-directory --jobs 3 check unit

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

BENCHMARKS := imports parsing objects xml_residue relations covering sigma paper boolean conjunctions growth churn building storage overlay queries broker spark

bench: $(READY) ## Run the benchmarks and write their tables and plots
	@set -e; for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name; done

clean: ## Remove build output and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .cache dist site
	find src benchmarks -name '*.nb[ic]' -delete
