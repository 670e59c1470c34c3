# The two commands a newcomer types, `make demo` and `make test`, do all their own set-up.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.PHONY: demo test slow lint types check bench generate clean

demo: $(READY)
	$(BIN)/noiseproof demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m "not slow"

slow: $(READY)
	$(BIN)/pytest -q -m slow

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# All that a change must pass.
check: lint types test

# The files that are written from data: README.md's table and noiseproof.functional's stub, and docs/results.md.
generate: $(READY)
	$(BIN)/python tools/generate.py

bench: $(READY)
	$(BIN)/python benchmarks/losses.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev]"
	@touch $@

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis noiseproof-demo
