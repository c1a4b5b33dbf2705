"""The only room that imports Prefect, beside ``flows/``: submit, claim, steps, result, reconcile."""
