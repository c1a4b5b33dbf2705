"""Telling the world that a job ended: webhooks and e-mail, sent by the leading reconciler.

What is to be told is planned in the ledger (:mod:`autocode.jobs.ledger.deliveries`); here it is sent.
"""
