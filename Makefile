.PHONY: lint
lint:
	.venv/bin/ruff check .
