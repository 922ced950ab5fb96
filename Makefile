PYTHON ?= python3
VENV ?= .venv
# Extra arguments for pip, for instance an index with CPU builds of torch (see README).
PIP_ARGS ?=
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Tests start many processes, and each would otherwise compile the sources again.
export PYTHONDONTWRITEBYTECODE =
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 -rs

.PHONY: run test slow fuzz lint types wheel docs format data clean

## run: install, and score the teaching model, mar-zh and BM25 on the packaged data
run: $(VENV)/.run
	$(BIN)/medteb run -b "MedTEB(cmn, mini)" -m mar-mini -m bm25-jieba
	$(BIN)/medteb run --data models/mar-zh/src/mar_zh/sample -m mar-zh -m mar-mini -m bm25-char-bigram

## test: install what the tests need and run them; TEST_ARGS='-m "not slow"' adds the thorough ones, as CI does
TEST_ARGS ?=
test: $(VENV)/.test
	$(PYTEST) $(TEST_ARGS)

## slow: the tests that take long, which CI does not run; SLOW_ARGS chooses some of them
SLOW_ARGS ?=
slow: $(VENV)/.test
	$(BIN)/python -m pytest -m slow -rs $(SLOW_ARGS)

## fuzz: change bytes of folders and requests for SECONDS, and look for anything but a clear refusal
SECONDS ?= 120
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz --seconds $(SECONDS)

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/.test
	$(BIN)/mypy

## wheel: build it, install it into an environment of its own and try it there
wheel: $(VENV)/.test
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --wheel --outdir dist models/mar-zh
	VENV=$(VENV)-wheel FROM=$(BIN)/python sh tests/smoke_wheel.sh dist/medteb-*.whl dist/mar_zh-*.whl

## docs: build the site into site/; a broken link is an error
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

## data: write the packaged edition again (deterministic; slow tests compare every byte)
data: $(VENV)/.run
	$(BIN)/python -m tools.mini tasks

format: $(VENV)/.test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-wheel dist build site

$(VENV)/.venv:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install -q --upgrade "pip>=25.1"
	touch $@

$(VENV)/.run: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) install -q $(PIP_ARGS) -c constraints.txt -e . -e ./models/mar-zh
	touch $@

$(VENV)/.test: $(VENV)/.venv pyproject.toml constraints.txt
	$(PIP) install -q $(PIP_ARGS) -c constraints.txt -e ".[train,build,serve,export,scale]" -e ./models/mar-zh \
		--group test --group lint --group typing --group build
	touch $(VENV)/.run $@

$(VENV)/.docs: $(VENV)/.run pyproject.toml constraints.txt
	$(PIP) install -q $(PIP_ARGS) -c constraints.txt --group docs
	touch $@
