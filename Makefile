# Each target sets up what it needs in .venv: Python 3.10+, pip and make suffice.
PYTHON ?= python3
APEX ?=
ONLY ?=
PYTEST_ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Models in the tests are tiny: threads inside torch would only fight over the cores.
export OMP_NUM_THREADS ?= 1

.PHONY: help demo test slow lint format docs bench conformance trust sweep metamorphic fuzz mutation experiments gpu lower newest torch frameworks site clean

help:
	@echo "make demo                   rewrite a program, show diff and report; verify some programs"
	@echo "make test                   run the tests"
	@echo "make slow                   the tests that run programs many times, or wait; CI runs them, too"
	@echo "make lint                   style, types, and whether generated pages are up to date"
	@echo "make format                 format the code, write the generated pages"
	@echo "make bench                  measure, and print ratios"
	@echo "make conformance APEX=DIR   run Apex's own tests, from a checkout, against the shim"
	@echo "make trust                  plant faults into right migrations and see that verify finds them"
	@echo "make sweep                  verify every program of fixtures/"
	@echo "make metamorphic            every program of fixtures/ in other words, migrated and run (ONLY=\"--fixture imagenet\")"
	@echo "make fuzz                   mutated programs, migrated and run: ten more minutes of them (ONLY=\"--minutes 60\", ONLY=\"--case 17\")"
	@echo "make mutation               faults planted into audit, rules and verdicts: do the tests see them? (ONLY=\"--file whole.py\")"
	@echo "make lower                  the tests of the rewriter at the lower bounds of its dependencies, without torch"
	@echo "make newest PYTHON=python3  the same from a wheel, with the newest of them, on any Python"
	@echo "make torch VERSION=2.4.0    shim, verify and emitted code on another torch (and PYTHON=python3.10)"
	@echo "make frameworks             what is written for Lightning, Transformers, ... is trained with by the real ones"
	@echo "make site                   the pages of docs/ as a site, in .site/"
	@echo "make experiments            published experiments in fp32, on Apex and migrated, side by side"
	@echo "make gpu                    on a GPU: device tests, conformance (APEX=DIR), trust, sweep, experiments, benchmarks,"
	@echo "                            figures into docs/benchmarks.md; REHEARSE=1: small, the CPU plays the device"

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Python 3.10 or newer is needed" if sys.version_info < (3, 10) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || $(PYTHON) -m venv --without-pip $(VENV)
	$(PYTHON) -m pip --python $(BIN)/python install --quiet --disable-pip-version-check \
		-c constraints.txt -e '.[dev]'
	touch $@

demo: $(READY)
	$(BIN)/python tests/demo.py

# Files stay together, so that what the tests of a file share is made once. Hundreds of processes start: none compiles anew.
test: $(READY)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist worksteal $(PYTEST_ARGS)

slow: $(READY)
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest -n 2 --dist worksteal -m slow $(PYTEST_ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m amp_migrate.docs --check

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/python -m amp_migrate.docs

docs: $(READY)
	$(BIN)/python -m amp_migrate.docs

bench: $(READY)
	$(BIN)/python tests/bench/run.py

conformance: $(READY)
	@test -n "$(APEX)" || { echo "usage: make conformance APEX=DIR (a checkout of NVIDIA/apex that still has apex/amp)"; exit 2; }
	$(BIN)/python tests/shim/conformance.py "$(APEX)"

trust: $(READY)
	$(BIN)/python tests/verify/trust.py

sweep: $(READY)
	$(BIN)/python -m tests.verify.sweep

metamorphic: $(READY)
	$(BIN)/python -m tests.metamorphic $(ONLY)

fuzz: $(READY)
	$(BIN)/python -m tests.fuzz $(ONLY)

mutation: $(READY)
	$(BIN)/python -m tests.mutation $(ONLY)

experiments: $(READY)
	$(BIN)/python tests/bench/experiments.py

gpu: $(READY)
	$(BIN)/python tests/bench/gpu.py $(if $(APEX),--apex "$(APEX)") $(if $(REHEARSE),--rehearse)

# What the package promises to work with (pyproject.toml), and no torch: what a pre-commit environment may hold.
LOWER := click==8.1.0 libcst==1.5.0 pathspec==0.12.0
LOWER_TESTS := tests/test_windows.py tests/test_c*.py tests/test_[lmou]*.py tests/test_pa*.py tests/test_prec*.py tests/test_reports*.py tests/test_sources*.py tests/writing

TEST_TOOLS := hypothesis jsonschema pre-commit pyflakes pytest "tomli; python_version < '3.11'"
PIP := -m pip install --quiet --disable-pip-version-check

lower:
	test -x .venv-lower/bin/python || $(PYTHON) -m venv .venv-lower
	.venv-lower/bin/python $(PIP) $(LOWER) $(TEST_TOOLS)
	PYTHONPATH=$(CURDIR) .venv-lower/bin/python -m pytest -q $(LOWER_TESTS) $(PYTEST_ARGS)

# A wheel in a clean environment, as users get it: it works where there is no torch, from any folder.
newest:
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/python $(PIP) --upgrade pip
	.venv-newest/bin/python -m pip wheel --quiet --no-deps --wheel-dir .venv-newest/wheel .
	.venv-newest/bin/python $(PIP) .venv-newest/wheel/*.whl
	! .venv-newest/bin/python -c "import torch" 2>/dev/null
	folder=$$(mktemp -d) && cp fixtures/imagenet/before.py $$folder/train.py && tool=$(CURDIR)/.venv-newest/bin/amp-migrate && \
		(cd $$folder && $$tool rewrite --quiet . && cmp train.py $(CURDIR)/fixtures/imagenet/after.py && $$tool check .) && \
		rm -r $$folder
	.venv-newest/bin/python $(PIP) $(TEST_TOOLS)
	.venv-newest/bin/python -m pip list | grep -E "^(click|libcst|pathspec) "
	PYTHONPATH=$(CURDIR) .venv-newest/bin/python -m pytest -q $(LOWER_TESTS) $(PYTEST_ARGS)

# What runs code on torch. The oldest that the package admits is 2.4.0.
VERSION ?= 2.4.0
TORCH_TESTS ?= tests/shim tests/verify tests/rules tests/test_fixtures.py

torch:
	test -x .venv-torch-$(VERSION)/bin/python || $(PYTHON) -m venv .venv-torch-$(VERSION)
	.venv-torch-$(VERSION)/bin/python $(PIP) torch==$(VERSION) \
		click libcst pathspec matplotlib numpy pytest-xdist $(TEST_TOOLS)
	.venv-torch-$(VERSION)/bin/python $(PIP) --no-deps -e .  # tests start it where no PYTHONPATH is
	PYTHONPATH=$(CURDIR) .venv-torch-$(VERSION)/bin/python -m pytest -q -m "" $(TORCH_TESTS) $(PYTEST_ARGS)

frameworks: $(READY)
	$(BIN)/python -m tests.frameworks $(ONLY)

site:
	test -x .venv-site/bin/mkdocs || { $(PYTHON) -m venv .venv-site && \
		.venv-site/bin/python -m pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10'; }
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict --quiet --config-file .ci/mkdocs.yml --site-dir ../.site
	@echo "open .site/index.html, or with the search: $(PYTHON) -m http.server --directory .site"

clean:
	rm -rf $(VENV) .venv-lower .venv-newest .venv-torch-* .venv-frameworks .venv-site .site .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist *.egg-info
