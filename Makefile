# make demo   set up and open the lab on http://127.0.0.1:7860      make test   set up and run every test
# Needs Python 3.11 or newer; PYTHON=… names another one.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
MODEL := test -f "$${LENGTH_LAB_CACHE:-.cache}/embedded/digests.json" || $(PY) -m backend.embedded

.PHONY: demo test bench bench-long bench-flat bench-gpu bench-llama train-smoke adapters shapes lengths far longform long-answers report lint screenshot clean

demo: $(VENV)/.runs
	@$(MODEL)
	$(PY) -m app $(ARGS)

# Two files of tests at a time, for the browser's mostly wait. All share the cores: waiting threads must give theirs up.
test: export OMP_WAIT_POLICY ?= passive
test: $(VENV)/.develops
	@$(MODEL)
	@.ci/chromium
	$(PY) -m pytest -n 2 --dist loadfile $(ARGS)

bench: $(VENV)/.develops
	@$(MODEL)
	@.ci/chromium
	$(PY) -m app.bench $(ARGS)

bench-long: $(VENV)/.runs
	@$(MODEL)
	$(PY) -m backend.evaluation.speed $(ARGS)

bench-flat: $(VENV)/.runs
	@$(MODEL)
	$(PY) -m backend.evaluation.flatness $(ARGS)

# Caches that grow by copying leave gaps in a GPU's memory.
bench-gpu: export PYTORCH_ALLOC_CONF ?= expandable_segments:True
bench-gpu: $(VENV)/.runs
	$(PY) -m backend.evaluation.gpu $(ARGS)

bench-llama: $(VENV)/.runs
	@$(MODEL)
	$(PIP) install xllamacpp==2026.10.11549
	$(PY) -m backend.evaluation.llama_cpp $(ARGS)

train-smoke: $(VENV)/.develops
	@$(MODEL)
	rm -rf .cache/smoke && $(PY) -m backend distill --out .cache/smoke/corpus.jsonl --questions 48 --turns 2 --longest 60
	$(PY) -m backend train --method ldpe --preset smoke --data .cache/smoke/corpus.jsonl --out .cache/smoke/ldpe
	$(PY) -m backend evaluate length --method ldpe --adapter .cache/smoke/ldpe --prompts 2 --ranges range --out .cache/smoke

# What lies in assets/, made anew: an hour and more each on two cores. What is there was made from corpora that were
# stopped at 886 answers (213 for limits), in more stages, with fewer prompts and documents; cards and results hold the
# commands, of training that of the last stage. DATA: folder with instructions.jsonl, scitldr_test.jsonl,
# hellobench_ht.jsonl and novels/.
DATA ?= ../shared/data
OWN := --note "Answers written by SmolLM2-135M-Instruct (Apache-2.0) to questions it wrote itself and to instructions \
of self-instruct and arena-hard (Apache-2.0)."
TRAIN := $(PY) -m backend train --data .cache/training/corpus.jsonl --longest-prompt 76 $(OWN)
LIMITS := $(PY) -m backend train --data .cache/training/whole.jsonl --longest-prompt 300 --longest 640 $(OWN)
LONG := $(PY) -m backend train --preset long --rate 8e-4 --data $(DATA)/longform.jsonl --note "Answers written by \
LongWriter-9B and by open models of 7 to 34 billion parameters to the prompts of HelloBench (MIT)."
LONGER := --data $(DATA)/responses.jsonl --samples 60 --shortest 2000
COUNTING := .cache/training/counting/ldpe
DISTILL := $(PY) -m backend distill --out .cache/training/corpus.jsonl --questions 500 --turns 2 \
	--prompts $(DATA)/instructions.jsonl
adapters: $(VENV)/.runs
	@$(MODEL)
	$(DISTILL)
	$(TRAIN) --method ldpe --samples 5000 --out $(COUNTING)
	$(TRAIN) --method ldpe --start $(COUNTING) --match 1 --samples 2000 --curriculum long --rate 6e-4 --out assets/adapters/ldpe
	$(TRAIN) --method orpe --start $(COUNTING) --match 1 --samples 2000 --curriculum long --rate 6e-4 --out assets/adapters/orpe
	$(TRAIN) --method pre --start $(COUNTING) --samples 1200 --rate 8e-4 --out .cache/training/counting/pre
	$(TRAIN) --method pre --start .cache/training/counting/pre --match 1 --samples 1400 --curriculum long --rate 6e-4 \
		--out assets/adapters/pre
	$(TRAIN) --method lrpe --start $(COUNTING) --samples 900 --rate 8e-4 --out assets/adapters/lrpe
	$(PY) -m backend distill --out .cache/training/whole.jsonl --no-hints --turns 1 --longest 640 --questions 192 \
		--prompts $(DATA)/instructions.jsonl
	for kind in ldpe orpe; do $(LIMITS) --method mnt_$$kind --start assets/adapters/$$kind --match 1 --samples 700 \
		--curriculum limits --mnt-sigma 512 --mnt-most 1024 --rate 5e-4 --out assets/adapters/mnt_$$kind || exit 1; done
	$(TRAIN) --method prompted_tuned --samples 700 --out assets/adapters/prompted_tuned
	$(LONG) $(LONGER) --method sft --out assets/adapters/sft
	$(LONG) $(LONGER) --method sft_ntk --ratio 16 --out assets/adapters/sft_ntk
	$(LONG) $(LONGER) --method sft_dynamic --out .cache/training/long/sft_dynamic
	$(LONG) --method sft_dynamic --start .cache/training/long/sft_dynamic --samples 36 --shortest 3000 --longest 5120 \
		--out .cache/training/longer/sft_dynamic
	$(LONG) --method sft_dynamic --start .cache/training/longer/sft_dynamic --samples 40 --shortest 3200 --longest 6600 \
		--segment 256 --out .cache/training/longest/sft_dynamic
	$(LONG) --method sft_dynamic --start .cache/training/longest/sft_dynamic --samples 60 --shortest 3200 --longest 6600 \
		--segment 256 --seed 1 --out .cache/training/longest_again/sft_dynamic
	$(LONG) --method sft_dynamic --start .cache/training/longest_again/sft_dynamic --samples 130 --shortest 1500 \
		--longest 6600 --segment 256 --seed 2 --out assets/adapters/sft_dynamic

shapes: $(VENV)/.runs
	@$(MODEL)
	$(DISTILL)
	$(PY) -m backend evaluate shapes --data .cache/training/corpus.jsonl $(ARGS)

lengths: $(VENV)/.develops
	@$(MODEL)
	$(PY) -m backend evaluate length --method none --ranges range beyond --data $(DATA) $(ARGS)
	for method in prompted prompted_tuned ldpe orpe lrpe pre mnt_ldpe mnt_orpe; do \
		$(PY) -m backend evaluate length --method $$method --data $(DATA) $(ARGS) || exit 1; done
	$(PY) -m backend evaluate length --method exp_decay --ranges range beyond --data $(DATA) $(ARGS)
	for method in ldpe orpe; do \
		$(PY) -m backend evaluate length --method $$method --landing 8 --ranges range --data $(DATA) $(ARGS) || exit 1; done
	$(PY) -m backend evaluate endmark
	$(PY) -m backend.training.card

far: $(VENV)/.develops
	@$(MODEL)
	$(PY) -m backend evaluate perplexity --data $(DATA)/novels --documents 1 $(ARGS)
	$(PY) -m backend evaluate perplexity --data $(DATA)/novels --documents 6 --policy plain --policy Λ --policy truncation \
		--lengths 2048 4096 8192 16384 32768 --longest 16384 --out assets/results/perplexity_novels.json
	$(PY) -m backend evaluate perplexity --lengths 2048 4096 8192 16384 32768 --longest 16384 \
		--out assets/results/perplexity_pydoc.json
	$(PY) -m backend evaluate perplexity --ablation --documents 1 --lengths 8192 12288 20480 --longest 20480 \
		--data $(DATA)/novels
	$(PY) -m backend evaluate computation --data $(DATA)/novels
	$(PY) -m backend evaluate recall --data $(DATA)/novels --longest 16384
	$(PY) -m backend evaluate diagnoses --data $(DATA)/novels
	$(PY) -m backend evaluate harness --method ldpe --method orpe --method pre --data $(DATA) --limit 24
	$(PY) -m backend evaluate harness --method sft --method sft_ntk --method sft_dynamic --data $(DATA) \
		--limit 24
	$(PY) -m backend evaluate harness --method sft --method sft_ntk --method sft_dynamic --data $(DATA) \
		--limit 80 --shots 5 --out assets/results/harness_pic_sft_shots.json

LONGFORM := $(PY) -m backend evaluate longform --prompts 8 --recent 128 --data $(DATA)/hellobench_ht.jsonl
SAMPLED := --temperature 1 --top-p 0.95
longform: $(VENV)/.develops
	@$(MODEL)
	$(LONGFORM) $(SAMPLED) --cap 2048 $(ARGS)
	$(LONGFORM) --cap 2048 --out assets/results/longform_greedy.json --policy plain --policy "dynamic contiguous s=4" \
		--policy "NTK s=16" $(ARGS)
	$(LONGFORM) $(SAMPLED) --prompts 32 --cap 2048 --out assets/results/longform_many.json --policy plain \
		--policy "dynamic contiguous s=4" $(ARGS)
	$(LONGFORM) $(SAMPLED) --trained --cap 6144 $(ARGS)
	$(LONGFORM) $(SAMPLED) --trained --cap 6144 --prompts 24 --out assets/results/pic_sft_many.json \
		--policy "w/o SFT, plain" --policy "dynamic PIC-SFT, dynamic s=4" $(ARGS)
	$(PY) -m backend evaluate longform --recent 128 --data $(DATA)/longbench_write_en.jsonl $(SAMPLED) --trained \
		--cap 6144 --wanted 2001 --prompts 8 --out assets/results/longbench_write_long.json \
		--policy "w/o SFT, plain" --policy "SFT, plain" --policy "NTK PIC-SFT, NTK s=16" \
		--policy "dynamic PIC-SFT, plain" --policy "dynamic PIC-SFT, dynamic s=4" $(ARGS)
	$(PY) -m backend evaluate longform --prompts 12 --recent 128 --data $(DATA)/longbench_write_en.jsonl $(SAMPLED) \
		--cap 1024 --out assets/results/longbench_write.json --policy plain --policy "dynamic contiguous s=4" \
		--policy "NTK s=16" $(ARGS)
	$(PY) -m backend.training.card

# One answer at a time, some days on two cores; goes on where it was stopped.
long-answers: $(VENV)/.develops
	@$(MODEL)
	$(PY) -m backend evaluate longform --prompts 100 --recent 128 --data $(DATA)/hellobench_ht.jsonl $(SAMPLED) --cap 4096 \
		--out assets/results/long_answers.json --policy plain --policy "dynamic contiguous s=4" \
		--policy "dynamic contiguous s=16" --policy "NTK s=4" $(ARGS)
	$(PY) -m backend report

report: $(VENV)/.runs
	$(PY) -m backend report

lint: $(VENV)/.develops
	$(PY) -m ruff check .
	$(PY) -m mypy

screenshot: $(VENV)/.develops
	@$(MODEL)
	@.ci/chromium
	$(PY) -m app.screenshot $(ARGS)

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis test-results

$(PY):
	@test -n "$(PYTHON)" || { echo "No Python found: install Python 3.11, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is missing or too old: install Python 3.11, or name one: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -e $(VENV) || rm -f $(VENV) # a link that leads nowhere
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "$(PYTHON) cannot make a virtual environment: install its venv module (Debian: python3.11-venv)"; exit 1; }

# The stamps make a second call instant and free of the network; a changed requirements file renews them.
$(VENV)/.runs: requirements.txt | $(PY)
	$(PIP) install -r requirements.txt
	@touch $@

$(VENV)/.develops: requirements-dev.txt requirements.txt | $(PY)
	$(PIP) install -r requirements-dev.txt
	@touch $(VENV)/.runs $@
