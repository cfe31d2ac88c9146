PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
TOOLS := .venv/tools
CLIENTS := .venv/clients
DOCS := .venv/docs
WORLDS := .venv-worlds
RLLIB := .venv-rllib
PARITY := $(addprefix tests/test_, pendulum.py double_pendulum.py reacher.py goal.py car.py)
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: setup demo test lint coverage bench verify chaos docs worlds rllib fresh clean

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

# The quick tests once more, with the lines that they miss; the floor is in pyproject.toml.
coverage: $(TOOLS)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile -m "not slow" --cov --cov-report term:skip-covered --cov-report xml

bench: setup
	for script in benchmarks/bench_*.py; do $(BIN)/python $$script || exit 1; done

verify: setup
	$(PIP) --editable ".[all,dev,ray,sweep]"
	SAUTE_VERIFY=1 $(BIN)/python -m pytest $(PARITY)
	$(BIN)/python -m pytest -m slow

# Kills, torn files, full disks, power cuts, folders from strangers, damaged files, odd costs; power cuts need loop mounts, so root.
chaos: $(TOOLS)
	cd tests && ../$(BIN)/python -m chaos --out ../results/chaos.md

# The site, into site/: warnings are errors, every link leads somewhere, every Python block of the pages runs.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(BIN)/python scripts/check_site.py site
	$(BIN)/python scripts/run_blocks.py README.md docs

$(DOCS): $(INSTALLED)
	$(PIP) --editable ".[all,docs]"
	touch $@

# Brax, MuJoCo Playground and gymnax in an environment of their own, because they bring much that nothing else here needs.
worlds: $(WORLDS)/installed
	SAUTE_WORLDS=1 $(WORLDS)/bin/python -m pytest tests/worlds

$(WORLDS)/installed: pyproject.toml
	$(PYTHON) -m venv $(WORLDS)
	$(WORLDS)/bin/python -m pip install --quiet --editable ".[train,jax-envs]" "playground>=0.2" "pytest>=8" "beartype>=0.20"
	touch $@

# RLlib asks for one version of Gymnasium, which is not ours.
rllib: $(RLLIB)/installed
	SAUTE_RLLIB=1 $(RLLIB)/bin/python -m pytest tests/rllib

$(RLLIB)/installed: pyproject.toml
	$(PYTHON) -m venv $(RLLIB)
	$(RLLIB)/bin/python -m pip install --quiet torch==2.13.0 --editable ".[train,rllib]" "pytest>=8" "beartype>=0.20"
	touch $@

fresh:
	$(PYTHON) tests/fresh_install.py

clean:
	rm -rf .venv $(WORLDS) $(RLLIB) site
