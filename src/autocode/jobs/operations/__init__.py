"""The work itself: job kinds as pure steps over sessions, redaction, store and ledger. No Prefect."""
