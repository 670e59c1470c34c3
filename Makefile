# The two commands a newcomer types, `make demo` and `make test`, do all their own set-up.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

OLDEST := .venv-oldest/bin
DOCS := .venv-docs/bin
# torch for CPUs, a tenth of one with CUDA; empty where the usual index has it
CPU_TORCH ?= --extra-index-url https://download.pytorch.org/whl/cpu

.PHONY: demo test slow integrations oldest lint types check bench docs package generate clean

demo: $(READY)
	$(BIN)/noiseproof demo

test: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 3 --dist worksteal -m "not slow"

slow: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n 2 -m slow

# Other people's frameworks, 450 MB of them.
integrations: .venv/.integrations
	$(BIN)/pytest -q tests/integrations tests/test_examples.py

.venv/.integrations: $(READY)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev,integrations]"
	@touch $@

# The tests with the oldest torch that pyproject.toml allows, in an environment of its own (gigabytes, if it is a CUDA build).
oldest: .venv-oldest/.ready
	OMP_NUM_THREADS=1 $(OLDEST)/pytest -q -n 2 -m "not slow" -o filterwarnings=default

.venv-oldest/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-oldest
	sed '/^torch==/d; /^triton==/d; /^numpy==/d; /^sympy==/d' constraints.txt > .venv-oldest/constraints.txt
	printf 'torch==2.6.0\ntriton==3.2.0\nnumpy<2.3\n' >> .venv-oldest/constraints.txt
	$(OLDEST)/pip install --quiet --constraint .venv-oldest/constraints.txt torch numpy
	$(OLDEST)/pip install --quiet --constraint .venv-oldest/constraints.txt --editable ".[lab,dev]"
	@touch $@

lint: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# All that a change must pass.
check: lint types test

# The files that are written from data: README.md's numbers, noiseproof.functional's stub, docs/benchmarks/ and tables of other pages.
generate: $(READY)
	$(BIN)/python tools/generate.py

# The documentation, into site/index.html; a warning is an error. Its environment has torch for CPUs, no other framework, and no
# compiled bytecode, a fifth of its size.
docs: .venv-docs/.ready
	PYTHONDONTWRITEBYTECODE=1 $(DOCS)/sphinx-build -q -E -W --keep-going -j auto -b html docs site

# The wheel and the source distribution, into dist/.
package: $(READY)
	rm -rf dist
	$(BIN)/python -m build --no-isolation

bench: $(READY)
	$(BIN)/python benchmarks/losses.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --constraint constraints.txt torch numpy
	$(BIN)/pip install --quiet --constraint constraints.txt --editable ".[lab,dev]"
	@touch $@

.venv-docs/.ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	$(DOCS)/pip install --quiet --no-compile --constraint constraints.txt $(CPU_TORCH) torch numpy
	$(DOCS)/pip install --quiet --no-compile --constraint constraints.txt --editable ".[docs]"
	@touch $@

clean:
	rm -rf .venv dist site .venv-docs .venv-oldest .pytest_cache .mypy_cache .ruff_cache .hypothesis
