# Everything a person needs starts here; see README.md.
PYTHON ?= python3.11
BIN := .venv/bin
PROFILE ?= quick
# The first of these that exists is used to make the environment.
BASE := $(firstword $(shell command -v $(PYTHON) python3 python))

.PHONY: demo test reproduce race bench against wan lint clean

demo: .venv/installed
	$(BIN)/spyker compare examples/demo.toml --out runs/demo --overwrite

test: lint
	$(BIN)/pytest -n 2 --dist loadfile

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reproduce: .venv/installed
	$(BIN)/spyker reproduce all --profile $(PROFILE) --out runs/reproduce-$(PROFILE) --resume

# About three hours on two cores; Ctrl-C and the same again go on where it was.
race: .venv/installed-race
	$(BIN)/spyker race --out runs/race --resume --document docs/race.md --readme README.md

bench: .venv/installed-deploy
	$(BIN)/python -m benchmarks.run $(ONLY)

# Is anything slower than it was? make against REVISION=…
against: .venv/installed-deploy
	$(BIN)/python -m benchmarks.against $(REVISION)

# As root, on Linux: the same scenario in network namespaces and in the emulated world.
wan: .venv/installed-deploy
	$(BIN)/python -m wan.run --docs docs/wan.md $(if $(ONLY),--algorithms $(ONLY))

.venv/installed: pyproject.toml constraints.txt
	@echo "Installing into .venv; the first time this takes a minute or two."
	test -x $(BIN)/python || $(BASE) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

.venv/installed-deploy: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[deploy]'
	touch $@

.venv/installed-race: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[race]'
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[deploy,dev,pandas,race,ray]'
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist
