# The two commands of the README are `make demo` and `make test`; both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-quick test-seeds test-newer check docs bench paper lock audit clean

setup: $(STAMP)

$(STAMP): pyproject.toml lock.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "bne needs Python 3.11 or newer; got $$($(PYTHON) --version). Run make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --requirement lock.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: setup
	$(BIN)/python examples/demo.py

# All tests, on all cores. BLAS gets one thread in each process, so that cores are not shared twice.
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses logical --dist worksteal
test: setup
	$(PYTEST)

# What to run while working: under two minutes.
test-quick: setup
	$(PYTEST) -m "not slow"

# All tests with five other seeds of all data, fits and samples.
SEEDS ?= 1 2 3 4 5
test-seeds: setup
	for seed in $(SEEDS); do BNE_TEST_SEED=$$seed $(PYTEST) || exit 1; done

# The same tests on a newer Python, in an environment of its own: make test-newer NEWER=python3.13
NEWER ?= python3.13
test-newer:
	$(MAKE) test PYTHON=$(NEWER) VENV=.venv-newer

# The site, in out/site; its examples are run, and a warning fails the build.
docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

bench: setup
	$(BIN)/python benchmarks/run.py

# The paper's figures, or one of them: make paper FIGURE=fig4. A stopped run goes on where it was.
FIGURE ?= all
paper: setup
	$(BIN)/python -m paper $(FIGURE)

# Resolve the newest versions that satisfy pyproject.toml, for every platform, with their hashes.
lock:
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --all-extras --no-emit-index-url \
		--generate-hashes --custom-compile-command "make lock" --output-file lock.txt pyproject.toml

# Known weaknesses of what lock.txt pins; asks PyPI itself, which mirrors do not answer for.
audit: setup
	$(BIN)/python -m pip install --quiet pip-audit
	$(BIN)/pip-audit --requirement lock.txt --require-hashes --disable-pip --progress-spinner off

clean:
	rm -rf $(VENV) out .pytest_cache .ruff_cache
