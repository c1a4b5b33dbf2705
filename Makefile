# Needs GNU make, sh and Python >= 3.11, nothing else. `make` alone says what there is.
# PYTHON=python3.12 make install    another interpreter
# make test ARGS="-k lease"         options for pytest; for `make requirements`, for uv

.DEFAULT_GOAL := help
.PHONY: help install demo serve test test-long test-crash lessons lint typecheck format bench-export bench-service bench-events prefect-schema requirements clean

# paths are relative on purpose: the folder's own name may hold spaces
PY := .venv/bin/python
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header --quiet pyproject.toml requirements/build.in
ARGS ?=
export ARGS PYTHON
unexport VIRTUAL_ENV PYTHONHOME PYTHONPATH

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 24

install: ## make .venv with everything that work on the project needs
	@sh scripts/install dev

demo: ## export the sample sessions, kill it halfway, see it finish
	@sh scripts/install run
	@$(PY) scripts/demo.py

serve: install ## run the whole service until Ctrl-C; ARGS="--port 8080" goes to it
	@.venv/bin/autocode-jobs up $(ARGS)

test: install ## run the tests in stages; ARGS="-k lease" goes to pytest
	@$(PY) scripts/test.py

test-long: install ## the rest: every process of the service killed, one after the other
	@$(PY) scripts/test.py -m long

test-crash: install ## kill, freeze and starve a service while jobs run; ARGS="--rounds 50 --seed 3"
	@.venv/bin/autocode-jobs crash-test $(ARGS)

lessons: install ## run the lessons anew and store what they print; ARGS names some of them
	@$(PY) scripts/lessons.py

lint: install ## ruff (rules and format), mypy, direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports

typecheck: install ## mypy alone
	$(PY) -m mypy

format: install ## apply ruff's fixes and format
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench-export: install ## exports beside tar | zstd | sha256sum; ARGS="--sizes 1,10,100,1000 --write"
	$(PY) -m bench.export $(ARGS)

bench-service: install ## the whole service beside Prefect's process worker; ARGS="--short" or "--write"
	$(PY) -m bench.service $(ARGS)

bench-events: install ## how soon followers of events are told; ARGS="--followers 1,100,500 --write"
	$(PY) -m bench.events $(ARGS)

prefect-schema: install ## write anew what the installed Prefect's migrations make of an empty database
	@$(PY) scripts/prefect_schema.py
	@$(PY) scripts/prefect_postgresql.py

requirements: ## pin requirements/*.txt anew from pyproject.toml; ARGS="--upgrade" moves the pins
	@command -v uv > /dev/null || { echo "make requirements needs uv: pip install uv" >&2; exit 1; }
	$(COMPILE) --output-file requirements/run.txt $(ARGS)
	$(COMPILE) --extra dev --extra lessons --constraint requirements/run.txt --output-file requirements/dev.txt $(ARGS)

clean: ## remove .venv, caches and build results
	rm -rf .venv dist build .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
