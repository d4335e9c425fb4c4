# Everything runs in .venv, which the first target that needs it makes. Nothing is installed again until what is
# installed changes (constraints.txt, pyproject.toml).

PYTHON ?= python3.11
BIN := .venv/bin
STAMP := .venv/.installed
BENCH := .venv-bench/bin
BENCH_STAMP := .venv-bench/.installed
PEERS := stable-baselines3 sb3-contrib tianshou torchrl
RUN_DIR ?= outputs/ppo_cartpole/$(shell date +%Y-%m-%d_%H-%M-%S)

export OMP_NUM_THREADS ?= 1

PYTHONS ?= $(PYTHON)

.PHONY: help setup train test slow long check docs dist check-wheel audit bench bench-all learn problems fix clean

help:  ## List the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $(STAMP)

setup: $(STAMP)  ## Make .venv and install the package with everything that its tests need.

train: $(STAMP)  ## Train PPO on CartPole-v1 until 20 evaluation episodes average 475; fails if they never do.
	$(BIN)/maze-pl fit --config ppo_cartpole --stop_at_return.threshold 475 --run_dir $(RUN_DIR)

test: $(STAMP)  ## The fast tests.
	$(BIN)/python -m pytest -m "not slow" -q -n auto

slow: $(STAMP)  ## The tests that train.
	$(BIN)/python -m pytest -m "slow and not long" -q -n auto --dist worksteal --durations 25

long: $(STAMP)  ## The slow tests that take too long for each change: more training, more generated cases.
	$(BIN)/python -m pytest -m long -q -n auto --dist worksteal --durations 25

check: $(STAMP)  ## Lint, format and types.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict maze_pl maze_pl_runtime

docs: $(STAMP)  ## Build the documentation site in build/docs; a warning is an error.
	$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/docs
	@echo "build/docs/index.html"

dist: $(STAMP)  ## Build the wheel and the source distribution twice, and compare them byte by byte.
	rm -rf dist build/again
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d dist
	SOURCE_DATE_EPOCH=$$(git log -1 --format=%ct) $(BIN)/python -m hatchling build -d build/again
	diff -r dist build/again

check-wheel: $(STAMP)  ## Install the wheel into empty environments of PYTHONS, with lowest and newest dependencies, and use it.
	$(BIN)/python tools/check_wheel.py --python $(PYTHONS)

audit: $(STAMP)  ## Look for known vulnerabilities of all installed packages; needs a network.
	test -x .venv-audit/bin/pip-audit || ($(PYTHON) -m venv .venv-audit && .venv-audit/bin/python -m pip install --quiet pip-audit)
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+[a-z0-9]*$$//' > .venv-audit/requirements.txt
	.venv-audit/bin/pip-audit --no-deps --disable-pip -r .venv-audit/requirements.txt

bench: $(BENCH_STAMP)  ## Compare the speed of the main workloads with stable-baselines3 and print it (about 25 minutes).
	$(BENCH)/python benchmarks/run.py

bench-all: $(BENCH_STAMP)  ## Compare all workloads with all other libraries; writes docs/benchmarks.md (about 55 minutes).
	$(BENCH)/python benchmarks/run.py --all

problems: $(BENCH_STAMP)  ## Train agents for the applied problems, and compare them with rules and solvers; writes docs/problems.md (a day).
	$(BENCH)/python benchmarks/structure.py --workers 2
	$(BENCH)/python benchmarks/problems.py --search

learn: $(STAMP)  ## Train all shipped configurations with three seeds; writes docs/results.md (ten hours).
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[envpool]"
	$(BIN)/python benchmarks/learn.py

$(BENCH_STAMP): pyproject.toml constraints.txt
	test -x $(BENCH)/python || $(PYTHON) -m venv .venv-bench
	$(BENCH)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[box2d,onnx,problems]" $(PEERS)
	# imitation needs an older gymnasium; where it cannot be installed, it is not measured
	test -x .venv-imitation/bin/python || $(PYTHON) -m venv .venv-imitation
	-.venv-imitation/bin/python -m pip install --quiet --disable-pip-version-check imitation $$(grep ^torch== constraints.txt)
	touch $(BENCH_STAMP)

fix: $(STAMP)  ## Fix what ruff can fix.
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove all build products, including the virtual environment.
	rm -rf .venv .venv-audit .venv-bench .venv-imitation build dist .mypy_cache .pytest_cache .ruff_cache
