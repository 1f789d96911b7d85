# `make help` lists the targets. Everything is installed below .venv and .cache; `make clean` takes both away.
PYTHON ?= python3
BIN := .venv/bin
ROOT := $(shell id -u)

.DEFAULT_GOAL := help
.PHONY: help figures bench bench-peers bench-fleet deb venv system demo test test-vm test-arm64 test-soak test-quick check coverage lint types arch format lock audit-updater clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: system venv ## Show the main job on a disposable device (root), or on your own user manager
	$(BIN)/python -m tests.demo

test: system venv check ## All tests; as root also those on disposable Debian 12 and 13 devices
	$(BIN)/python -m tests.suite -n 3 --no-loadscope-reorder $(PYTEST_ARGS)
	$(MAKE) coverage

test-vm: system venv .cache/.vm-packages ## The upgrade and the limits in a virtual machine with a kernel of its own (root; minutes)
	$(BIN)/python -m pytest tests/vm -m vm $(PYTEST_ARGS)

test-soak: system venv ## The long run: full numbers of generations, resources, containers, idle minutes, power cuts (root; hours)
	HARMONY_SOAK=1 $(BIN)/python -m pytest --timeout 7200 --durations=0 tests/device/test_lifecycle_bounds.py \
		tests/device/test_cluster_power.py tests/device/test_container_devices.py tests/integration/test_growth.py tests/integration/test_cluster.py \
		tests/integration/test_many_devices.py tests/integration/test_two_operators.py $(PYTEST_ARGS)

.cache/.vm-packages: tests/vm/apt-packages.txt
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$(cat $<) >/dev/null
	@mkdir -p .cache && touch $@

test-quick: venv ## The tests that need neither root nor a device
	$(BIN)/python -m pytest -m "not device" -n auto

check: lint types ## What needs no root and no run: lint, types

# Without property tests: what chance covers today it may miss tomorrow.
coverage: venv ## Branch coverage of what decides (core, plans, the updater's machine): 100 %, by tables alone
	@mkdir -p .cache
	$(BIN)/coverage run -m pytest -q -m "not hypothesis" tests/unit/core tests/unit/container tests/unit/file tests/unit/network \
		tests/unit/package \
		tests/unit/session tests/unit/system_upgrade tests/unit/systemd_unit tests/unit/volume tests/unit/updater/test_machine.py
	$(BIN)/coverage report

lint: venv ## ruff: format and rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: venv ## mypy --strict
	$(BIN)/mypy

format: venv ## Reformat and mend what ruff can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: venv ## Figures beside their floors, in five minutes (root: also on a device); BENCH_ARGS=--full for ten idle minutes
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

bench-peers: venv ## The same work by cf-agent, puppet, ansible, pyinfra and salt, which it installs (root; many minutes)
	$(BIN)/python -m tests.bench.peers

bench-fleet: venv ## Fleets of 1,000 and 10,000 simulated devices against bare floors
	$(BIN)/python -m tests.bench.fleet

figures: venv ## The figures of the tree: lengths, docstrings, importers, levels and arrows, circles
	$(BIN)/python -m tests.arch.figures

audit-updater: venv ## What the root updater is made of, and every command that it can ever run
	$(BIN)/python deploy/audit_updater.py

test-arm64: system venv .cache/.arm64-packages ## The packages for arm64 on an emulated Debian 12 and 13 (root; minutes)
	$(BIN)/python -m pytest tests/arm64 --timeout 3600 --capture=no $(PYTEST_ARGS)

.cache/.arm64-packages: tests/arm64/apt-packages.txt
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$(cat $<) >/dev/null
	@mkdir -p .cache && touch $@

deb: venv $(if $(filter 0,$(ROOT)),.cache/.deb-packages) ## The Debian packages, into dist/; DEB_SUITE and DEB_ARCH limit for what
	$(BIN)/python deploy/deb/build.py $(DEB_SUITE:%=--suite %) $(DEB_ARCH:%=--arch %)

.cache/.deb-packages: deploy/deb/apt-packages.txt
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$(cat $<) >/dev/null
	@mkdir -p .cache && touch $@

venv: .venv/.made ## Make .venv with the locked versions

.venv/.made: requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or later is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

system: ## Install the Debian packages that disposable devices need (only as root)
ifeq ($(ROOT),0)
system: .cache/.packages
else
	@echo "not root: what needs a disposable device is left out"
endif

.cache/.packages: tests/device/apt-packages.txt
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$(cat $<) >/dev/null
	@mkdir -p .cache && touch $@

lock: venv ## Write requirements.lock anew from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate --python-version 3.11 \
		--extra dev pyproject.toml --output-file requirements.lock

clean: ## Take away .venv, caches and device images
	test ! -d .cache/harmony-device || $(BIN)/python -m tests.device.image clean
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
