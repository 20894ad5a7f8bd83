# The commands for users, developers and CI. `make demo` and `make test` create .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench bench-attack bench-verify bench-acasxu bench-scale bench-diagnose bench-certify fuzz-verify train train-paper lint docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("holdfast needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run e.g. make PYTHON=python3.12 demo" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# The core without extras. It is installed again only when pyproject.toml or constraints.txt changes.
# pip compiles the packages it installs, but not an editable checkout; compiling saves 40 ms per start.
$(VENV)/.core: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@$(BIN)/python -m compileall -q src/holdfast
	@touch $@

# The extras that the demo uses.
$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/.core
	$(PIP) -e '.[attack,language,noise]'
	@touch $@

# All extras, linters and the reference implementations that the tests compare with.
$(VENV)/.full: pyproject.toml constraints.txt | $(VENV)/.core
	$(PIP) -e '.[all,dev,docs]'
	$(BIN)/python -c 'import librosa; librosa.stft(librosa.tone(440, length=4096))'  # fill librosa's cache of compiled code
	@touch $@

$(VENV)/.bench: $(VENV)/.full
	$(PIP) -e '.[bench]'
	@touch $@

demo: $(VENV)/.demo  ## set up, audit the embedded detector, write report.html
	$(BIN)/holdfast demo -o report.html

# Compile the kernels of verify before the tests: within a test, compilation would use up its time limit.
PYTEST := $(BIN)/holdfast vnncomp warm && $(BIN)/python -m pytest -n auto --dist loadfile

test: lint  ## set up, check style, types and layers, run the tests
	$(PYTEST)

test-full: lint  ## all tests, with random and more examples
	$(PYTEST) -m "slow or not slow" --hypothesis-profile explore

lint: $(VENV)/.full
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.core
	$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## build the documentation into build/docs (warnings are errors)
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

bench-scale: $(VENV)/.full  ## what Ray, parts and stores cost (about 15 minutes)
	$(BIN)/python benchmarks/scale.py --million

bench: $(VENV)/.bench  ## compare AP scoring with other libraries
	$(BIN)/python benchmarks/coco_scoring.py

bench-attack: $(VENV)/.bench  ## compare patch attacks with ART (about an hour)
	$(BIN)/python benchmarks/attack.py

bench-verify: $(VENV)/.full  ## 60 instances of six VNN-COMP benchmarks at the official time limits (about an hour)
	$(BIN)/python benchmarks/verify.py

bench-acasxu: $(VENV)/.full  ## all 186 ACAS Xu instances
	$(BIN)/python benchmarks/verify.py acasxu

fuzz-verify: $(VENV)/.full  ## look for wrong proofs with random small networks (SECONDS=600)
	PYTHONPATH=tests OMP_NUM_THREADS=1 $(BIN)/python tools/fuzz_verify.py --seconds $(or $(SECONDS),600)

bench-diagnose: $(VENV)/.full  ## find mistakes of a target that independent code makes, in its input and in its predictions
	$(BIN)/python benchmarks/diagnose.py
	$(BIN)/python benchmarks/diagnose_predictions.py

bench-certify: $(VENV)/.bench  ## certified recall of wrapped detectors, and ART's ObjectSeeker (about half an hour)
	$(BIN)/python benchmarks/certify.py --jobs 2

train: $(VENV)/.full  ## train the six shipped models (about two and a half hours on two cores)
	PYTHONPATH=tools $(BIN)/python -m models --out src/holdfast/models

train-paper: $(VENV)/.full  ## measure mitigations of system noise: Tables 6 to 9 and Fig. 4 of the paper (up to two hours on two cores)
	PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python benchmarks/train_paper.py

clean:  ## remove .venv, caches and results
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist docs/reference report.html holdfast-runs holdfast-train
