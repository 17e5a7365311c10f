# make quickstart   the whole path on the embedded dataset, in minutes on a laptop CPU
# make test         the test suite
# make test-lowest  the test suite on the lowest versions that pyproject.toml allows
# make test-slow    the campaigns (kills, packaging) and newly drawn cases of every property; an hour
# make docs         the documentation site, in build/site
# make check        format, lint, types, imports between rooms, leaderboard
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --disable-pip-version-check --constraint constraints.txt

.PHONY: quickstart test test-lowest test-slow docs check format benchmark clean

quickstart: .venv/installed
	$(BIN)/ncl-bench quickstart --to quickstart

test: .venv/installed-test
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not gpu and not slow and not benchmark"

test-lowest: build/lowest/installed
	build/lowest/bin/python -m pytest -n 2 --dist worksteal -m "not gpu and not slow and not benchmark"

test-slow: .venv/installed-test
	$(BIN)/python -m pytest -m "slow or hypothesis" --hypothesis-profile=random

check: .venv/installed-test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/ncl-bench leaderboard build --check

docs: .venv/installed-docs
	rm -rf build/pages build/site
	mkdir -p build/pages/docs && cp docs/site.css build/pages/docs
	git ls-files -- '*.md' '*.svg' '*.png' '*.ipynb' LICENSE ':!tests' | tar cf - -T - | tar xf - -C build/pages
	find build/pages -name '*.md' -exec perl -pi -e 's/^(```[a-z]+) no-run$$/$$1/; s/^(```[a-z]+) ([a-z_.]+)$$/$$1 title="$$2"/' {} + # as the site writes them; sed -i differs on macOS
	$(BIN)/zensical build --strict --clean

format: .venv/installed-test
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

benchmark: .venv/installed-test
	$(BIN)/python -m pytest -m benchmark -s tests/benchmarks/bench_*.py

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[baselines]'
	touch $@

.venv/installed-test: .venv/installed
	$(PIP) --editable '.[baselines,test]'
	touch $@

# torch, which packages of the tests ask for, keeps its version: its lowest one has a job in tests.yml
hashes.txt: pyproject.toml constraints.txt # contents of what judges and publishes the board, and of what builds a release
	uv pip compile pyproject.toml --extra leaderboard --group release --constraint constraints.txt --generate-hashes \
	  --universal --python-version 3.11 --no-annotate --custom-compile-command 'make hashes.txt' --output-file $@

build/lowest/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv --clear build/lowest
	grep '^torch' constraints.txt > build/lowest/torch.txt
	build/lowest/bin/pip install --disable-pip-version-check --no-deps --requirement build/lowest/torch.txt uv
	VIRTUAL_ENV=build/lowest build/lowest/bin/uv pip install --resolution lowest-direct \
	  --override build/lowest/torch.txt --editable '.[baselines,test]'
	touch $@

.venv/installed-docs: pyproject.toml constraints.txt # reads the sources, so it needs no torch
	$(PYTHON) -m venv .venv
	$(PIP) --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv build dist quickstart .pytest_cache .mypy_cache .ruff_cache .hypothesis
