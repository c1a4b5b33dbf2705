"""An export with rules of the user's: what the payload says, and what follows from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autocode.jobs.errors import PayloadInvalid, RedactionFailed
from autocode.jobs.operations.export import EXPORT, ExportPayload
from autocode.jobs.operations.export import kind as kind_module
from autocode.jobs.redaction import DEFAULT_POLICY, CustomRules, Policy, policy_with
from autocode.jobs.store import LocalStore
from export_context import Job, StoreContext, line, manifest_of, objects_of, run

RULES = {"rules": [{"id": "acme", "kind": "acme", "pattern": "acme-[0-9]{4}"}]}
SOURCES = [{"root": "samples"}]


def job_of(root: Path, home: Path, rules: object) -> Job:
    """Return a job whose payload has these rules."""
    payload = EXPORT.parse({"sources": SOURCES, "rules": rules})
    return Job(StoreContext(root, LocalStore(home / "store")), payload)


def test_rules_are_part_of_the_payload_the_memo_and_the_manifest(tmp_path: Path) -> None:
    """Other rules read the session anew; the bundle names the policy, and nothing of the rules is in it."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "s").write_bytes(line("call acme-1234"))
    plain, own = job_of(tmp_path / "in", tmp_path, None), job_of(tmp_path / "in", tmp_path, RULES)

    digests = [run(plain), run(own)]

    store = own.context.store
    policies = [manifest_of(store, digest)["redaction"] for digest in digests]
    assert policies[0]["digest"] == DEFAULT_POLICY.digest
    assert policies[1] == {
        "name": "default+custom",
        "revision": DEFAULT_POLICY.revision,
        "digest": policy_with(CustomRules.model_validate(RULES)).digest,
    }
    assert own.keys[1] != plain.keys[1]
    assert not any(b"acme-[0-9]" in data for data in objects_of(store).values())
    assert any(b"[REDACTED:acme:1]" in data for data in objects_of(store).values())


def test_a_payload_without_rules_is_what_it_was(tmp_path: Path) -> None:
    """No new field changes the fingerprint of jobs that don't use it; with rules, the content counts."""
    without = ExportPayload.model_validate({"sources": SOURCES})
    withrules = ExportPayload.model_validate({"sources": SOURCES, "rules": RULES})

    assert without.model_dump(mode="json") == {"sources": [{"root": "samples", "select": []}], "redact": True}
    dumped = withrules.model_dump(mode="json")
    assert dumped["rules"]["rules"][0]["pattern"] == "acme-[0-9]{4}"
    assert ExportPayload.model_validate(dumped) == withrules


@pytest.mark.parametrize(
    ("rules", "redact", "told"),
    [
        ({"rules": [{"id": "acme", "kind": "acme", "pattern": "(?=a)b"}]}, True, "acme"),
        ({"allow": [{"rule": "jwt"}]}, True, "allow list"),
        ({"allow": [{"value": "x"}]}, True, "/rules/allow/0/value"),
        ("/etc/rules.toml", True, "/rules"),
        (RULES, False, "without redaction"),
    ],
)
def test_rules_that_make_no_sense_are_no_payload(rules: object, redact: bool, told: str) -> None:
    """A malformed rule, a literal value, a path or rules without redaction are refused at once."""
    with pytest.raises(PayloadInvalid, match=told):
        EXPORT.parse({"sources": SOURCES, "rules": rules, "redact": redact})


def test_a_program_with_other_rules_does_not_read_under_a_digest_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered under a policy's digest was made by that policy, or isn't made."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "s").write_bytes(line())
    monkeypatch.setattr(kind_module, "_described", lambda _policy: None)
    job = job_of(tmp_path / "in", tmp_path, None)
    other = Policy("other", 1, ())
    monkeypatch.setattr(type(job.payload), "policy", other)

    with pytest.raises(RedactionFailed):
        run(job)
