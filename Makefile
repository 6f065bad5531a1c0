# Targets for developers; see README.md and CONTRIBUTING.md.
PYTHON ?= python3.11
BIN := .venv/bin
PROFILE ?= quick
# The first of these interpreters that exists creates the environment.
BASE := $(firstword $(shell command -v $(PYTHON) python3 python))

.PHONY: demo test chromium proxies spin flower test-all chaos reproduce race grid grid-ablation bench against wan drill docs lint release-check wheel server-env clean

demo: .venv/installed
	$(BIN)/spyker compare examples/demo.toml --out runs/demo --overwrite

# At most six minutes on two idle cores. Tests marked slow are left out: real deployments beyond one for each promise, those
# in network namespaces, those that measure the memory of live processes, algorithms that share the tested code, and the
# formal models. Three processes keep two cores busy, because tests of real processes often wait.
test: lint chromium
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not slow"

# The slow tests as well: every item of the paper, all seeds of chaos, real networks.
test-all: lint chromium proxies spin
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

# The browser for tests of the dashboard. If the download fails, these tests are skipped.
chromium:
	@command -v chromedriver >/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	apt-get install --quiet --yes --no-install-recommends chromium chromium-driver >/dev/null 2>&1; } || \
	echo "No Chromium here: the tests of the page in a browser are skipped."

# The tests with Flower, in an environment of their own, because Flower requires older packages.
flower: .venv/installed-flower
	.venv/flower/bin/python -m pytest tests/flower

# Fault injection into simulated deployments, from seeds: half an hour on two cores.
chaos: .venv/installed
	$(BIN)/python -m chaos --seeds 1-10000

# The model checker for formal/. If it cannot be installed, its tests are skipped.
spin:
	@command -v spin >/dev/null || { test "$$(id -u)" = 0 && apt-get install -y -qq spin >/dev/null 2>&1; } || true

# The proxies of docs/how-to/proxies.md. If they cannot be installed, their tests are skipped.
proxies:
	@for each in nginx haproxy squid; do command -v $$each >/dev/null || test -x /usr/sbin/$$each || \
	{ test "$$(id -u)" = 0 && command -v apt-get >/dev/null && \
	apt-get install --quiet --yes --no-install-recommends $$each >/dev/null 2>&1; } || \
	echo "No $$each here: its tests are skipped."; done

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

reproduce: .venv/installed-lab
	$(BIN)/spyker reproduce all --profile $(PROFILE) --out runs/reproduce-$(PROFILE) --resume

# About three hours on two cores; after Ctrl-C the same command resumes.
race: .venv/installed-lab
	$(BIN)/spyker race --out runs/race --resume --document docs/reports/race.md

# Stride beside FedAvg and HierFAVG in 315 configurations: an hour on two cores; after Ctrl-C the same command resumes.
grid: .venv/installed-flower
	.venv/flower/bin/python -m benchmarks.grid --document docs/reports/grid.md

grid-ablation: .venv/installed-lab
	$(BIN)/python -m benchmarks.grid.ablation

bench: .venv/installed-deploy .venv/installed-lab
	$(BIN)/python -m benchmarks.run $(ONLY)

# Compare the speed with an earlier revision: make against REVISION=…
against: .venv/installed-deploy .venv/installed-lab
	$(BIN)/python -m benchmarks.against $(REVISION)

# As root, on Linux: one scenario deployed in network namespaces, compared with its emulation.
wan: .venv/installed-deploy
	$(BIN)/python -m chaos.wan.run --docs docs/reports/wan.md $(if $(ONLY),--algorithms $(ONLY))

# As root, on Linux, twenty minutes: real servers are destroyed, stopped and cut off; ONLY=link selects one drill.
drill: .venv/installed-deploy
	$(BIN)/python -m chaos.drill $(if $(ALGORITHM),--algorithm $(ALGORITHM)) $(if $(ONLY),--only $(ONLY),--docs docs/reports/drill.md)

# Build the documentation in site/. Its search needs a server: .venv/bin/mkdocs serve
docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # --quiet would silence --strict as well
	@echo "site/index.html"

# Build the sdist, build the wheel from it, install the wheel into an empty environment and run it on the embedded dataset.
# Then install it for a server alone, without PyTorch.
RELEASE := .venv/release
release-check: wheel server-env
	rm -rf $(RELEASE)/empty $(RELEASE)/work && mkdir -p $(RELEASE)/work
	$(BASE) -m venv $(RELEASE)/empty
	$(RELEASE)/empty/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[simulation]"
	cd $(RELEASE)/work && PYTHONPATH= ../empty/bin/spyker run --task digits --clients 8 --duration 5 --out run
	cd $(RELEASE)/work && PYTHONPATH= ../empty/bin/spyker plot run --out plots && PYTHONPATH= ../empty/bin/spyker export run --out model
	@ls -l dist

wheel:
	rm -rf $(RELEASE)/build dist && mkdir -p $(RELEASE)
	$(BASE) -m venv $(RELEASE)/build
	$(RELEASE)/build/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt hatchling
	$(RELEASE)/build/bin/hatchling build -t sdist -d dist
	$(RELEASE)/build/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w dist dist/*.tar.gz

# The environment of a server, without PyTorch; checks that a server starts in it.
LARGE := torch|scikit-learn|scipy|matplotlib|pandas|pooch|requests|ray|flwr
MODEL := from pathlib import Path; from spyker.api.read_scenario import read_scenario; \
  from spyker.tasks.registry import task_spec; from spyker.tasks.served_model import ServedModel, write_served_model; \
  task = task_spec(read_scenario(task="quadratic")).make(); \
  write_served_model(Path("model.safetensors"), ServedModel.of(task))
server-env: wheel
	rm -rf $(RELEASE)/server $(RELEASE)/serving && mkdir -p $(RELEASE)/serving
	$(BASE) -m venv $(RELEASE)/server
	$(RELEASE)/server/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt "$$(ls dist/*.whl)[server]"
	$(RELEASE)/server/bin/python -m pip list --disable-pip-version-check
	! $(RELEASE)/server/bin/python -m pip list --disable-pip-version-check | grep -iE '^($(LARGE)) '
	cd $(RELEASE)/serving && PYTHONPATH= ../server/bin/spyker --help > help.txt && \
	  printf 'algorithm = "fedasync"\n[task]\nname = "mnist"\n' > scenario.toml && \
	  printf 'scenario = "scenario.toml"\n[deploy]\nserver = 0\nlisten-clients = "127.0.0.1:0"\nmodel = "model.safetensors"\n' > server.toml && \
	  PYTHONPATH= ../server/bin/python -c '$(MODEL)' && \
	  PYTHONPATH= ../server/bin/spyker serve server.toml --check --insecure

.venv/installed: pyproject.toml constraints.txt
	@echo "Installing into .venv; the first time this takes a minute or two."
	test -x $(BIN)/python || $(BASE) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[pandas,simulation]'
	touch $@

.venv/installed-deploy: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[server,simulation]'
	touch $@

.venv/installed-lab: .venv/installed lab/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[simulation]' -e lab
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs,server,simulation]'
	touch $@

.venv/installed-dev: .venv/installed lab/pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,docs]' -e lab
	touch $@

.venv/installed-flower: .venv/installed-dev constraints-flower.txt
	$(BIN)/python -m venv .venv/flower
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(%r)" % sysconfig.get_path("purelib"))' \
	  > $$(.venv/flower/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/beside.pth
	.venv/flower/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-flower.txt "flwr[simulation]" flwr-datasets
	touch $@

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist site
