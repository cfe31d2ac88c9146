PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
TOOLS := .venv/tools
CLIENTS := .venv/clients
WORLDS := .venv-worlds
PARITY := $(addprefix tests/test_, pendulum.py double_pendulum.py reacher.py goal.py car.py)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup demo test lint bench verify chaos worlds fresh clean

setup: $(TOOLS) $(CLIENTS)

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) --editable ".[all]"
	touch $@

$(TOOLS): $(INSTALLED)
	$(PIP) --editable ".[all,dev]"
	touch $@

# Without a small build of torch there are no client libraries, which is said, and the rest goes on.
$(CLIENTS): $(TOOLS) scripts/install_clients.py
	if $(BIN)/python scripts/install_clients.py; then touch $@; fi

# Five seeds with and without the budget, what fresh episodes prove about them, a box plot and a film.
demo: $(INSTALLED)
	rm -rf runs/demo
	$(BIN)/saute train pendulum --algo sac --preset quick --out runs/demo/saute
	$(BIN)/saute train pendulum --algo sac --preset quick --method vanilla --out runs/demo/vanilla
	$(BIN)/saute evaluate runs/demo/vanilla runs/demo/saute --episodes 1000
	$(BIN)/saute plot box runs/demo/vanilla runs/demo/saute --out runs/demo/box.png
	$(BIN)/saute watch pendulum --policy runs/demo/saute --mode test --out runs/demo/film.gif

# Whole files go to one of as many processes as there are cores, since tests of a file share what they compiled.
test: setup lint
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow"

lint: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: setup
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

verify: setup
	$(PIP) --editable ".[all,dev,ray,sweep]"
	SAUTE_VERIFY=1 $(BIN)/python -m pytest $(PARITY)
	$(BIN)/python -m pytest -m slow

# Kills, torn files, full disks, power cuts, folders from strangers, damaged files, odd costs; power cuts need loop mounts, so root.
chaos: $(TOOLS)
	cd tests && ../$(BIN)/python -m chaos --out ../results/chaos.md

# Brax, MuJoCo Playground and gymnax in an environment of their own, because they bring much that nothing else here needs.
worlds: $(WORLDS)/installed
	SAUTE_WORLDS=1 $(WORLDS)/bin/python -m pytest tests/worlds

$(WORLDS)/installed: pyproject.toml
	$(PYTHON) -m venv $(WORLDS)
	$(WORLDS)/bin/python -m pip install --quiet --editable ".[train,jax-envs]" "playground>=0.2" "pytest>=8" "beartype>=0.20"
	touch $@

fresh:
	$(PYTHON) tests/fresh_install.py

clean:
	rm -rf .venv $(WORLDS)
