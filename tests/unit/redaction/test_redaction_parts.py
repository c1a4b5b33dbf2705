"""Redacting a session in parts."""

from __future__ import annotations

import json
import random

from autocode.jobs.canonical import canonical_json
from autocode.jobs.redaction import DEFAULT_POLICY, Redactor
from autocode.jobs.testing.fake_secrets import fake_secret

ONE, TWO = (fake_secret("github-token", random.Random(seed))[1] for seed in (1, 2))


def test_numbers_and_report_go_on_behind_a_part() -> None:
    """A redactor that goes on from a state numbers on, and its report has the places of both parts."""
    first = Redactor(DEFAULT_POLICY)
    first.redact_record(0, {"text": ONE})
    second = Redactor(DEFAULT_POLICY, state=json.loads(canonical_json(first.state())))

    shown = [second.redact_record(number, {"text": text}) for number, text in ((1, TWO), (2, ONE), (3, TWO))]

    assert [record["text"] for record in shown] == [f"[REDACTED:github-token:{n}]" for n in (2, 3, 2)]
    assert [place.record for place in second.report.places] == [0, 1, 2, 3]
    assert second.report.counts == {"github-token": 4}
    assert second.report.to_json()["total"] == 4


def test_a_state_holds_no_secret() -> None:
    """Neither a secret nor anything that was made of it is handed on."""
    redactors = [Redactor(DEFAULT_POLICY), Redactor(DEFAULT_POLICY)]
    for redactor, secret in zip(redactors, (ONE, TWO), strict=True):
        redactor.redact_record(0, {"text": secret})

    assert redactors[0].state() == redactors[1].state()


def test_masking_replaces_and_reports_nothing() -> None:
    """A masked copy has the number that the secret has already, and the report stays as it is."""
    redactor = Redactor(DEFAULT_POLICY)
    redactor.redact_record(0, {"text": ONE})
    before = redactor.report.to_json()

    masked = redactor.mask({"title": f"of {ONE}"})

    assert masked == {"title": "of [REDACTED:github-token:1]"}
    assert redactor.report.to_json() == before
