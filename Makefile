# Every target makes its own .venv when it is missing or older than pyproject.toml.
# Needs: Python 3.11 or newer, pip, make.   make PYTHON=python3.12 …   takes another Python.

PYTHON ?= python3
EXAMPLES ?= 1000
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO := build/demo
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
CODE := e2llm_opt tests benchmarks docs examples

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all browser test-engine lint format bench headline coverage mutation docs site schema clean

help:
	@echo "make demo      plan every file in examples/, check each plan, show the testbed's"
	@echo "make test      the tests that take seconds"
	@echo "make test-all  all tests, more random examples (EXAMPLES=$(EXAMPLES))"
	@echo "make browser   what the tests of pages in a browser need (part of test-all)"
	@echo "make test-engine  predict and measure llama.cpp here, start exports (7 minutes; the first time 20 more, to build it)"
	@echo "make lint      ruff, mypy, import contracts, spelling"
	@echo "make format    let ruff lay out and fix what it can"
	@echo "make bench     measure everything, write docs/benchmarks.md (some minutes)"
	@echo "make headline  reproduce the paper's waiting times, write docs/headline.md (half an hour)"
	@echo "make coverage  branches that the tests take, kernels as plain Python (a quarter of an hour)"
	@echo "make mutation  put small faults into the code and see whether the tests notice (half an hour)"
	@echo "make docs      write the output of commands into README.md and docs/ anew"
	@echo "make site      build the site of docs/ into build/site, warnings are errors"
	@echo "make schema    write e2llm_opt/plan/plan.schema.json anew"
	@echo "make clean     remove .venv and everything built"

install: $(STAMP)

$(STAMP): pyproject.toml
	@echo "installing into $(VENV) …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 …")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) --editable '.[test,lint]'
	@touch $@

# A search that takes longer stops here and keeps the best plan so far.
DEMO_SECONDS ?= 10

demo: $(STAMP)
	@mkdir -p $(DEMO)
	@echo "planning and checking every file in examples/; the first one compiles the kernels"
	@set -e; for file in examples/*.yaml; do \
	    plan=$(DEMO)/$$(basename $$file .yaml).json; \
	    printf '%-34s' "$$file"; \
	    $(BIN)/e2llm-opt plan $$file --quiet --time-limit $(DEMO_SECONDS) --output $$plan; \
	    printf 'planned, '; \
	    $(BIN)/e2llm-opt check $$plan $$file --quiet; \
	    echo "checked: $$plan"; \
	done
	@echo
	$(BIN)/e2llm-opt plan examples/e2llm-testbed.yaml

test: $(STAMP)
	$(BIN)/python -m pytest -q -n 2 --benchmark-disable -m "not slow and not engine" tests benchmarks

# A browser looks at pages; Debian's is installed where that is possible, else those tests skip.
browser: $(STAMP)
	@$(PIP) --editable '.[browser]'
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
	    && apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } \
	    || echo "no chromium: the tests of pages in a browser are skipped"

test-all: $(STAMP) browser
	HYPOTHESIS_PROFILE=nightly HYPOTHESIS_EXAMPLES=$(EXAMPLES) \
	    $(BIN)/python -m pytest -q -n 2 --benchmark-disable -m "not engine" tests benchmarks

# LLAMA_CPP_BIN_DIR=…  takes a build of your own, with llama-bench, llama-server and the RPC worker.
LLAMA_CPP := build/llama.cpp

test-engine: $(STAMP)
	@$(PIP) --editable '.[test,engine]'
	@test -n "$(LLAMA_CPP_BIN_DIR)" || PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/engine/build.py $(LLAMA_CPP)
	$(BIN)/python -m pytest -s -v -m engine tests/engine

lint: $(STAMP)
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check --quiet $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell e2llm_opt benchmarks docs examples *.md pyproject.toml Makefile

format: $(STAMP)
	$(BIN)/ruff check --fix $(CODE)
	$(BIN)/ruff format $(CODE)

bench: $(STAMP)
	$(BIN)/python -m benchmarks.write_report

headline: $(STAMP)
	$(BIN)/python benchmarks/headline.py --write-docs

# Kernels that run as plain Python can be followed, but are slow: fewer random examples, and
# without the tests that take minutes then.
coverage: $(STAMP)
	NUMBA_DISABLE_JIT=1 HYPOTHESIS_PROFILE=coverage \
	    $(BIN)/python -m pytest -q -n 2 --benchmark-disable -m "not slow and not engine and not needs_jit" \
	    --cov --cov-report=term tests

mutation: $(STAMP)
	@$(PIP) --editable '.[test,mutation]'
	$(BIN)/python -m benchmarks.mutation

docs: $(STAMP)
	$(BIN)/python docs/record.py

site: $(STAMP)
	@$(PIP) --editable '.[site]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

schema: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m e2llm_opt schema > build/plan.schema.json
	mv build/plan.schema.json e2llm_opt/plan/plan.schema.json

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .benchmarks
