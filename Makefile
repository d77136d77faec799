# Everything runs in .venv, which is made and kept up to date by itself: `make test` after an edit tests the edit.
# Another Python: `PYTHON=python3.12 make test`. Another place for the environment: `VENV=/somewhere make test`.

VENV ?= .venv
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
VERSION := import platform; print(platform.python_version())
ifdef PYTHON
ASKED := $(shell $(PYTHON) -c '$(VERSION)' 2>/dev/null)
else
# The environment's own Python if there is one, else the first of these that is new enough.
PYTHON := $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python,\
	$(shell $(name) -c '$(NEW_ENOUGH)' 2>/dev/null && echo $(name))) python3)
ASKED := any
endif

# Tests whose assertions pytest has rewritten are kept: rewriting takes ten seconds a process.
unexport PYTHONDONTWRITEBYTECODE

# -P: nothing is imported from the checkout, whose folders are not the installed package.
RUN := $(VENV)/bin/python -P
PIP := $(RUN) -m pip --disable-pip-version-check
FOLDERS := core checkpoints landscape decomposition training cli
# Folders are listed too: a folder is newer once a file in it was deleted or renamed.
SOURCES := $(shell find $(FOLDERS) -name __pycache__ -prune -o -print 2>/dev/null)

# As many processes as this process may use cores; a file's tests stay together, because they share what they train.
PASS := $(RUN) -m pytest -n auto --maxprocesses 8 --dist loadfile
ANALYSES := tests/core tests/decomposition tests/landscape
RUNS := tests/training tests/checkpoints
COMMANDS := $(patsubst %,--ignore=%,$(ANALYSES) $(RUNS))
SUITE := $(PASS) --doctest-modules --pyargs tests/ fedscope
# Long runs of the papers stand still meanwhile: programs on the same cores disturb each other.
PAUSED := $(RUN) docs/papers/long/pause.py

# Another order for each commit, the same again for the same commit.
SHUFFLED = -p randomly --randomly-seed=$$(printf '%d' 0x$$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0))
# What the processor's arithmetic and threads cannot change is not repeated there; property tests are, with more examples.
ELSEWHERE := -m 'not slow and not programs and not gpu and not device and not (same_elsewhere and not hypothesis)'
OTHERWISE = THOROUGH=1 OMP_WAIT_POLICY=passive OPENBLAS_NUM_THREADS=1 $(AVX2) $(PAUSED)
AVX2 := ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2

.PHONY: demo test test-analyses test-commands test-runs test-programs test-device test-elsewhere test-everywhere test-slow campaign papers papers-long papers-gpu gpu gpu-wheels lint types format site docs notebooks bench dist clean
.DEFAULT_GOAL := test

## demo: train federations on real data and draw every figure, into demo/
demo: $(VENV)/.installed
	$(VENV)/bin/fedscope demo

## test: all tests and the examples in the docstrings, but for the slow ones: the four passes below
test: test-analyses test-commands test-runs test-programs

## test-analyses: those of analyses and figures
test-analyses: $(VENV)/.installed
	$(PAUSED) $(PASS) $(ANALYSES)

## test-commands: those of commands, pages and the rules of the project, and the examples
test-commands: $(VENV)/.installed
	$(PAUSED) $(SUITE) $(COMMANDS)

## test-runs: those of training and of what runs hold
test-runs: $(VENV)/.installed
	$(PAUSED) $(PASS) $(RUNS)

## test-programs: those that start programs or kill them, play pages and papers whole, or measure memory
test-programs: $(VENV)/.installed
	$(PAUSED) $(PASS) -m 'not slow and programs' tests

# Threads that wait for each other sleep: several processes' threads that spin take twice the time. Those of numpy's BLAS
# spin whatever they are told, and took four times the time of one; `make test-everywhere` has a thread a core of them.
## test-elsewhere: in three passes those that compute, as a processor without AVX-512, in another order, with a thread a core and more examples
test-elsewhere: $(VENV)/.installed
	$(OTHERWISE) $(PASS) $(ELSEWHERE) $(SHUFFLED) $(ANALYSES)
	$(OTHERWISE) $(SUITE) $(ELSEWHERE) $(SHUFFLED) $(COMMANDS)
	$(OTHERWISE) $(PASS) $(ELSEWHERE) $(SHUFFLED) $(RUNS)

# In processes of their own: the device is torch's accelerator for a whole process, and `auto` takes it.
ON_DEVICE := $(RUN) -m pytest -q -n auto --maxprocesses 8 --dist loadfile
## test-device: all paths of an accelerator on a pretend one, on `pretend`, `pretend:1` and both; needs g++
test-device: $(VENV)/.installed
	@why=$$(PYTHONPATH=tests $(RUN) -c 'from device.pretend import why_not; print(why_not())') || exit; \
	if [ -n "$$why" ]; then echo "make test-device: SKIPPED, nothing was tested: $$why" >&2; exit 0; fi; set -x; \
	FEDSCOPE_DEVICE=pretend $(PAUSED) $(ON_DEVICE) -m '(gpu or device) and not slow' tests/gpu tests/device && \
	FEDSCOPE_DEVICE=pretend:1 $(PAUSED) $(ON_DEVICE) -m gpu tests/gpu && \
	FEDSCOPE_DEVICE=pretend:0,pretend:1 $(PAUSED) $(ON_DEVICE) -m gpu tests/gpu

## test-everywhere: all tests under every capability of the processor, on one core and in another order
test-everywhere: $(VENV)/.installed
	ATEN_CPU_CAPABILITY=default $(SUITE)
	ATEN_CPU_CAPABILITY=avx2 $(SUITE)
	ONEDNN_MAX_CPU_ISA=AVX2 $(SUITE)
	THOROUGH=1 OMP_WAIT_POLICY=passive $(AVX2) $(SUITE) $(SHUFFLED)
	taskset -c 0 $(SUITE)

test-slow: $(VENV)/.installed
	$(RUN) -m pytest -m slow
	FEDSCOPE_DEVICE=pretend $(RUN) -m pytest -m 'device and slow' tests/device

## campaign: commands on damaged files, as many as CASES says (1500), drawn from SEED (0) on, and a table of how they ended
campaign: $(VENV)/.installed
	$(RUN) -m pytest -q -s -m slow tests/test_campaign.py

## papers: redraw the papers' figures from runs in papers/ (hours the first time; goes on after any stop)
papers: $(VENV)/.installed
	$(VENV)/bin/python docs/papers/make

## papers-long: the papers' figures at their own length, in the background: hours; WORDS= names units, --list, --keep
papers-long: $(VENV)/.installed
	$(VENV)/bin/python docs/papers/long $(WORDS)

## gpu: tests and benchmarks on a GPU in eight minutes, with PYTHON's own torch and no network: PYTHON=, DATA=FILE.npz, OUT=
DEVICE ?= cuda
gpu:
	$(PYTHON) tests/gpu/make.py --device $(DEVICE) $(if $(DATA),--data $(DATA)) $(if $(OUT),--out $(OUT)) $(if $(filter cpu,$(DEVICE)),--quick)

## gpu-wheels: fetch into wheels/ what such a machine most likely lacks, or NAMES=; FOR=3.12 where its Python is another
NAMES ?= attrs cattrs lazy_loader narwhals plotly tomli-w typing_extensions
PLATFORMS := $(foreach age,2_28 2_27 2_17 2014,--platform manylinux$(if $(findstring _,$(age)),_)$(age)_x86_64)
gpu-wheels:
	$(PYTHON) -m pip --disable-pip-version-check download -q --no-deps --only-binary=:all: -c constraints.txt -d wheels \
		$(if $(FOR),--python-version $(FOR) --implementation cp $(PLATFORMS)) $(NAMES)

## papers-gpu: papers-long on a GPU, with PYTHON's own torch and no network: PYTHON=, DEVICE=, WORDS=
papers-gpu:
	$(PYTHON) tests/gpu/make.py --environment
	PYTHONPATH=$(CURDIR)/.gpu:$(CURDIR)/.gpu/site $(PYTHON) -P docs/papers/long --here --device $(DEVICE) $(WORDS)

lint: $(VENV)/.dependencies
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/.installed
	$(RUN) -m mypy

format: $(VENV)/.dependencies
	$(RUN) -m ruff check --fix .
	$(RUN) -m ruff format .

## site: write the reference from the code, then build the site into site/
site: $(VENV)/.installed
	$(RUN) docs/generate.py
	$(RUN) -m mkdocs build --strict

## docs: the same with the gallery, whose runs are trained and whose pictures are drawn again first
docs: $(VENV)/.installed
	$(RUN) docs/make_gallery.py
	$(MAKE) site

## notebooks: run the notebooks again and keep what they show in them
notebooks: $(VENV)/.installed
	$(RUN) docs/refresh_notebooks.py

bench: $(VENV)/.installed
	@set -e; for benchmark in benchmarks/[a-z]*.py; do echo "== $$benchmark"; $(PAUSED) $(VENV)/bin/python "$$benchmark"; done

## dist: build sdist and wheel into dist/ and compare both with the checkout; TAG=v0.1.0 says which version they must be
dist: $(VENV)/.dependencies
	@rm -rf build dist fedscope.egg-info
	$(RUN) -m build --no-isolation
	@rm -rf build fedscope.egg-info
	$(RUN) tests/distributions.py dist $(if $(TAG),--tag $(TAG))
	@rm -rf build fedscope.egg-info
	@if $(RUN) -c 'import twine' 2>/dev/null; then $(RUN) -m twine check --strict dist/*; \
		else echo 'twine is not here, so what an index makes of the description was not checked'; fi

clean:
	rm -rf $(VENV) build dist site fedscope.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- the environment: three steps, each with its stamp ---

# Made anew when its Python does not run any more, or is of another version than the one asked for.
HAVE := $(shell $(VENV)/bin/python -c '$(VERSION)' 2>/dev/null)
ifeq ($(HAVE),)
.PHONY: $(VENV)/.python
else ifeq ($(filter $(HAVE) any,$(ASKED)),)
.PHONY: $(VENV)/.python
endif

OR := or name another, as in \`PYTHON=python3.12 make test\`.
$(VENV)/.python:
	@$(PYTHON) -c '' 2>/dev/null || { echo "fedscope needs Python 3.11 or newer, but \`$(PYTHON)\` does not run: install it, $(OR)" >&2; exit 1; }
	@$(PYTHON) -c '$(NEW_ENOUGH)' || { echo "fedscope needs Python 3.11 or newer, but \`$(PYTHON)\` is $$($(PYTHON) -c '$(VERSION)'): install a newer one, $(OR)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "\`$(PYTHON)\` cannot make environments: install its venv module (on Debian and Ubuntu the package python3-venv), $(OR)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

$(VENV)/.dependencies: $(VENV)/.python pyproject.toml constraints.txt
	@echo 'Installing what fedscope needs into $(VENV); this takes a minute or two.'
	@rm -rf build fedscope.egg-info
	$(PIP) install -qq -c constraints.txt '.[dev]'
	@touch $@

# From a clean build/, where deleted modules would survive.
$(VENV)/.installed: $(VENV)/.dependencies $(SOURCES)
	@rm -rf build fedscope.egg-info
	$(PIP) install -qq --no-deps --no-build-isolation .
	@rm -rf build fedscope.egg-info
	@touch $@
