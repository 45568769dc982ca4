# make demo   set up and open the lab on http://127.0.0.1:7860      make test   set up and run every test
# Needs Python 3.11 or newer; PYTHON=… names another one.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
MODEL := test -f "$${LENGTH_LAB_CACHE:-.cache}/embedded/digests.json" || $(PY) -m backend.models.embedded

.PHONY: demo check test test-ui test-attacks test-scale test-ray serve-ray bench vitals bench-long bench-flat bench-gpu bench-llama train-smoke adapters shapes headlines report lock audit lint screenshot soak space-check container-check clean

demo: $(VENV)/.runs
	@$(MODEL)
	$(PY) -m app $(ARGS)

# Two files of tests at a time, for the browser's mostly wait. All share the cores: waiting threads must give theirs up.
test check: export OMP_WAIT_POLICY ?= passive
test: $(VENV)/.develops
	@$(MODEL)
	@.ci/browser chromium
	$(PY) -m pytest -n 2 --dist loadfile $(ARGS)

# What takes longer than a change can wait: run what a change touches before it is called done.
test-ui test-attacks test-scale test-ray: test-%: ; @[ $* != ui ] || .ci/browser firefox || true; $(MAKE) test ARGS="-m $* $(ARGS)"

# Replicas on Ray Serve write what the page shows: ARGS="--replicas 4".
serve-ray test-ray: $(VENV)/.ray
test-ray: override ARGS += -n 0
serve-ray: ; $(MAKE) demo ARGS="--ray $(ARGS)"

# These need a browser, but for soak. space-check does what a CPU Space would.
bench vitals screenshot soak space-check: $(VENV)/.develops
	@$(MODEL)
	@.ci/browser chromium
	$(PY) -m app.$(subst -,_,$@) $(ARGS)

bench-long: EXPERIMENT := decode_speed
bench-flat: EXPERIMENT := constant_cost
bench-long bench-flat: $(VENV)/.runs
	@$(MODEL)
	$(PY) -m backend evaluate $(EXPERIMENT) $(ARGS)

# Caches that grow by copying leave gaps in a GPU's memory.
bench-gpu: export PYTORCH_ALLOC_CONF ?= expandable_segments:True
bench-gpu: $(VENV)/.runs
	$(PY) -m backend evaluate gpu_speed $(ARGS)

bench-llama: $(VENV)/.runs
	@$(MODEL)
	$(PIP) install xllamacpp==2026.10.11549
	$(PY) -m backend evaluate llama_cpp $(ARGS)

train-smoke: $(VENV)/.develops
	@$(MODEL) && rm -rf .cache/smoke && $(PY) -m backend.training.recipes smoke

# What lies in assets/, made anew: the recipes say how. DATA: folder of the data sets.
DATA ?= ../shared/data
adapters shapes headlines: $(VENV)/.develops
	@$(MODEL)
	$(PY) -m backend.training.recipes $@ --data-folder $(DATA) $(ARGS)

results/%: $(VENV)/.develops
	@$(MODEL)
	$(PY) -m backend.evaluation.recipes $* --data-folder $(DATA) $(ARGS)

report: $(VENV)/.runs ; $(PY) -m backend report

# What the container installs, and what is known of it, over the network.
lock: $(VENV)/.develops
	$(VENV)/bin/uv pip compile -q --no-annotate --no-header --python-version 3.12 --python-platform linux \
		--generate-hashes requirements.txt -o requirements.lock

audit: $(VENV)/.develops
	@mkdir -p .cache
	$(VENV)/bin/uvx pip-licenses@5.5.5 --python $(PY) --order=license
	$(VENV)/bin/uvx --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements.lock -o .cache/sbom.json
	$(VENV)/bin/uvx pip-audit@2.10.1 --strict --disable-pip --require-hashes -r requirements.lock

container-check: ; .ci/container $(ARGS)
lint: $(VENV)/.develops ; $(PY) -m ruff check . && $(PY) -m mypy
# What needs neither the model's weights, nor a browser, nor a server.
check: lint ; $(PY) -m pytest -n 2 --dist loadfile tests/unit $(ARGS)

clean: ; rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results

$(PY):
	@test -n "$(PYTHON)" || { echo "No Python found: install Python 3.11, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is missing or too old: install Python 3.11, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -e $(VENV) || rm -f $(VENV) # a link that leads nowhere
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3.11-venv)"; exit 1; }

# The stamps make a second call instant and free of the network; a changed requirements file renews them.
$(VENV)/.runs: requirements.txt | $(PY) ; $(PIP) install -r $< && touch $@

$(VENV)/.develops: requirements-dev.txt requirements.txt | $(PY)
	$(PIP) install -r requirements-dev.txt
	@touch $(VENV)/.runs $@

$(VENV)/.ray: requirements-ray.txt | $(VENV)/.runs ; $(PIP) install -r $< && touch $@
