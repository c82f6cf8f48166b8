# Every target sets up what it needs: a virtual environment in .venv, and nothing outside of it.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
DATA   ?= ../shared/data
BUNDLE       := vicinal-photos
BUNDLE_FILES := bundle.json backbone.onnx refiner.onnx refiner.npy MODEL_CARD.md NOTICE probe.npz recipe.toml training.csv

# Each worker reads images and trains small networks: one thread each is fastest, see tests/conftest.py. Some tests
# start processes: what they import is compiled once, whatever the shell says.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal

.PHONY: setup demo test test-all test-lowest lint bench bench-peers openapi docs screenshots vendor bundle clean

setup: $(VENV)/.dev ## development environment with torch: about 6 GB and a few minutes

demo: $(VENV)/.base ## a search service over a synthetic catalog
	$(BIN)/vicinal demo

test: $(VENV)/.dev ## what is decided inside of one process, in random order on every core; OPTIONS go to pytest
	$(PYTEST) -m 'not slow' $(OPTIONS)

test-all: $(VENV)/.dev ## that, and kills, replicas, engines, Ray, installations, benchmarks; then test-lowest
	$(PYTEST) $(OPTIONS)
	$(MAKE) test-lowest

test-lowest: $(VENV)/.lowest ## make test without torch, with the lowest versions of the dependencies that are allowed
	OMP_NUM_THREADS=1 $(VENV)/lowest/bin/python -m pytest -q -n auto --dist worksteal -m 'not slow' \
		--deselect tests/test_openapi.py::test_openapi_json_equals_what_is_served # words of FastAPI's own differ

lint: $(VENV)/.dev
	$(BIN)/python client/generate.py
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.dev ## every benchmark; results go to benchmarks/results, and what fell against those before is named
	rm -rf build/kept-results && mkdir -p build && cp -r benchmarks/results build/kept-results
	$(BIN)/python -m benchmarks.speed.index_recall
	$(BIN)/python -m benchmarks.speed.loss_costs
	$(BIN)/python -m benchmarks.speed.model_forms
	$(BIN)/python -m benchmarks.speed.query_stages
	$(BIN)/python -m benchmarks.refiner.costs
	$(BIN)/python -m benchmarks.speed.start_up --folder build/start-up
	$(BIN)/python -m benchmarks.speed.crash_run
	$(BIN)/python -m benchmarks.speed.swap_under_load
	$(BIN)/python -m benchmarks.speed.index_throughput --data $(DATA)
	$(BIN)/python -m benchmarks.speed.ready_embeddings --folder build/ready
	$(BIN)/python -m benchmarks.speed.ray_build
	$(BIN)/python -m benchmarks.speed.block_scores
	$(BIN)/python -m benchmarks.speed.cost_by_size --folder build
	$(BIN)/python -m benchmarks.quality.rerank_settings --data $(DATA)
	$(BIN)/python -m benchmarks.quality.protocol_search --data $(DATA)
	$(BIN)/python -m benchmarks.quality.interval_coverage
	$(BIN)/python -m benchmarks.common.baseline build/kept-results

bench-peers: $(VENV)/.dev ## the same work by Vicinal and by what a user would take instead, in one run
	$(PIP) -r benchmarks/peers/requirements.txt
	$(PIP) --no-deps --upgrade --target build/peers-oml -r benchmarks/peers/requirements-oml.txt
	$(BIN)/python -m benchmarks.peers.vector_search
	$(BIN)/python -m benchmarks.peers.reranking
	$(BIN)/python -m benchmarks.peers.calibration
	$(BIN)/python -m benchmarks.peers.embedding
	$(PYTHON) -m venv build/peers-chroma
	build/peers-chroma/bin/python -m pip install -r benchmarks/peers/requirements-chroma.txt
	$(BIN)/python -m benchmarks.peers.http_search --folder build/http --chroma build/peers-chroma/bin/chroma
	$(BIN)/python -m benchmarks.peers.report

openapi: $(VENV)/.base ## write openapi.json, which a test compares with what is served, and what the client has of it
	$(BIN)/vicinal openapi > openapi.json
	$(BIN)/python client/generate.py

docs: $(VENV)/.dev ## bring the tables of docs/settings.md and docs/training.md up to date, which a test compares
	$(BIN)/python docs/tables.py

screenshots: $(VENV)/.dev ## pictures of the page in the README, taken of the demo with Chromium
	$(BIN)/python docs/screenshots.py

vendor: ## take the libraries of the page anew, by what `service/static/vendor/versions.json` names
	$(PYTHON) .ci/vendor.py

bundle: $(VENV)/.dev ## train the model that ships with the package, and its refiner; DATA names the image sets
	$(BIN)/vicinal train recipes/$(BUNDLE).toml --data-root $(DATA) --output build/$(BUNDLE) --overwrite
	$(BIN)/vicinal train-refiner --bundle build/$(BUNDLE) --data recipes/$(BUNDLE)-refiner.toml --data-root $(DATA)
	cp $(addprefix build/$(BUNDLE)/,$(BUNDLE_FILES)) models/bundled/$(BUNDLE)/

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
	$(BIN)/python client/generate.py
	touch $@ $(VENV)/.base

# uv does not read pip's configuration: an index that is set there is handed on.
$(VENV)/.lowest: pyproject.toml $(VENV)/.dev
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/lowest
	UV_DEFAULT_INDEX=$$($(BIN)/python -m pip config get global.index-url 2> /dev/null || echo $$UV_DEFAULT_INDEX) \
		$(BIN)/uv pip install --quiet --python $(VENV)/lowest/bin/python --resolution lowest-direct -e '.[cpu,dev]'
	touch $@
