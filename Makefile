# make train   set up and train the default job
# make test    set up, check and test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check

.PHONY: train test test-slow check bench experiments clean

train: $(VENV)/ready
	$(BIN)/tianji train configs/cartpole_ppo.py

test: check
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-slow: $(VENV)/ready-dev
	@$(PIP) -r requirements.txt jaxmarl==0.2.0  # 600 MB; what its games teach is only tested here
	$(BIN)/python -m pytest -m ""

check: $(VENV)/ready-dev
	$(BIN)/ruff check tianji tests bench examples
	$(BIN)/ruff format --check tianji tests bench examples
	$(BIN)/mypy

bench: $(VENV)/ready-dev
	$(BIN)/python bench/figure5.py
	$(BIN)/python bench/channel.py
	$(BIN)/python bench/startup.py
	$(BIN)/python bench/allreduce.py
	$(BIN)/python bench/overlap.py
	$(BIN)/python bench/simulator.py
	$(BIN)/python bench/report.py
	$(BIN)/python bench/upkeep.py
	$(BIN)/python bench/trace_cost.py
	$(BIN)/python bench/rebalance.py
	$(BIN)/python bench/compare.py

experiments: $(VENV)/ready-dev
	$(BIN)/python bench/staleness.py
	$(BIN)/python bench/ratelimit.py
	$(BIN)/python bench/scaling.py
	$(BIN)/python bench/table1.py
	$(BIN)/python bench/ablation.py
	$(BIN)/python bench/actors.py
	$(BIN)/python bench/pong.py
	$(BIN)/python bench/figure4.py
	$(BIN)/python bench/figure9.py

$(VENV)/ready: requirements.txt pyproject.toml tianji/__init__.py
	@echo "Setting up $(VENV): once, about a minute."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "TianJi needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -r requirements.txt
	@$(PIP) --no-deps --editable .
	@$(BIN)/python -m compileall -q tianji
	@touch $@

$(VENV)/ready-dev: $(VENV)/ready requirements-dev.txt
	@$(PIP) -r requirements-dev.txt
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find tianji tests bench examples -name __pycache__ -prune -exec rm -rf {} +
