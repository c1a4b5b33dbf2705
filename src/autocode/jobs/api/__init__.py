"""The HTTP interface: what `docs/api.md` describes, over the ledger. No Prefect, no work of its own."""
