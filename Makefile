# Every target sets up what it needs: a virtual environment in .venv, and nothing outside of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DATA   ?= ../shared/data
BUNDLE_FILES := bundle.json backbone.onnx MODEL_CARD.md recipe.toml training.csv

.PHONY: setup demo test lint bench openapi docs bundle clean

setup: $(VENV)/.dev ## development environment with torch: about 6 GB and a few minutes

demo: $(VENV)/.base ## a search service over a synthetic catalog
	$(BIN)/vicinal demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev ## every benchmark; raw results go to benchmarks/results
	$(BIN)/python benchmarks/index_recall.py
	$(BIN)/python benchmarks/loss_costs.py
	$(BIN)/python benchmarks/query_stages.py
	$(BIN)/python benchmarks/refiner_costs.py
	$(BIN)/python benchmarks/start_up.py --folder build/start-up
	$(BIN)/python benchmarks/crash_run.py
	$(BIN)/python benchmarks/swap_under_load.py
	$(BIN)/python benchmarks/index_throughput.py --data $(DATA)
	$(BIN)/python benchmarks/rerank_settings.py --data $(DATA)
	$(BIN)/python benchmarks/protocol_search.py --data $(DATA)
	$(BIN)/python benchmarks/interval_coverage.py
	$(BIN)/python benchmarks/gallery_growth.py --data $(DATA)

openapi: $(VENV)/.base ## write openapi.json, which a test compares with what is served
	$(BIN)/vicinal openapi > openapi.json

docs: $(VENV)/.dev ## bring the tables of docs/training.md up to date, which a test compares
	$(BIN)/python docs/training_keys.py

bundle: $(VENV)/.dev ## train the bundle that ships with the package; DATA names the image sets
	$(BIN)/vicinal train recipes/vicinal-small.toml --data-root $(DATA) --output build/vicinal-small --overwrite
	cp $(addprefix build/vicinal-small/,$(BUNDLE_FILES)) models/bundled/vicinal-small/

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Vicinal needs Python 3.11 or newer")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[cpu]'
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) -e '.[cpu,train,dev]'
	touch $@ $(VENV)/.base
