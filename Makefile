# Everything a user or CI runs. `make demo` and `make test` set up .venv by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-full bench bench-attack bench-verify bench-acasxu train train-paper lint docs clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("holdfast needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say e.g. make PYTHON=python3.12 demo" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)

# The light core: no torch. Reinstalled only when what is installed has changed.
# pip compiles what it installs, but not a checkout; without that each start takes 40 ms longer.
$(VENV)/.light: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	@$(BIN)/python -m compileall -q src/holdfast
	@touch $@

# With torch (CPU) and tokenizers: what gradients and language models need.
$(VENV)/.torch: pyproject.toml constraints.txt | $(VENV)/.light
	$(PIP) -e '.[language,torch]'
	@touch $@

# Everything the tests need: torch (CPU), linters, reference implementations.
$(VENV)/.full: pyproject.toml constraints.txt | $(VENV)/.light
	$(PIP) -e '.[dev,decoders,docs,language,runtimes,speech,torch,verify,vnnlib2,web]'
	$(BIN)/python -c 'import librosa; librosa.stft(librosa.tone(440, length=4096))'  # likewise
	@touch $@

$(VENV)/.bench: $(VENV)/.full
	$(PIP) -e '.[bench]'
	@touch $@

demo: $(VENV)/.torch  ## set up, put the embedded model through every engine, write report.html
	$(BIN)/holdfast demo -o report.html

# numba compiles the kernels of verify once after a change in them; within a test that would use up its time limit.
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

$(VENV)/.docs: pyproject.toml constraints.txt | $(VENV)/.light
	$(PIP) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## set up, build the documentation into build/docs; warnings are errors
	$(BIN)/python -m sphinx -W -n --keep-going -q -b html docs build/docs
	@echo "open build/docs/index.html"

bench: $(VENV)/.bench  ## the benchmarks, side by side with the peers
	$(BIN)/python benchmarks/coco_scoring.py

bench-attack: $(VENV)/.bench  ## patch attacks beside ART's: about an hour
	$(BIN)/python benchmarks/attack.py

bench-verify: $(VENV)/.full  ## 60 instances of six VNN-COMP benchmarks at official limits: about an hour
	$(BIN)/python benchmarks/verify.py

bench-acasxu: $(VENV)/.full  ## all 186 ACAS Xu instances
	$(BIN)/python benchmarks/verify.py acasxu

train: $(VENV)/.full  ## train the six shipped models again (about two and a half hours on two cores)
	PYTHONPATH=tools $(BIN)/python -m models --out src/holdfast/models

train-paper: $(VENV)/.full  ## what helps against system noise: the paper's Tables 6 to 9 and Fig. 4 (at most two hours on two cores)
	PYTHONPATH=tools OMP_NUM_THREADS=1 $(BIN)/python benchmarks/train_paper.py

clean:  ## remove what was set up and made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist docs/reference report.html holdfast-runs holdfast-train
