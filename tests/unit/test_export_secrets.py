"""No planted secret survives a redacted export, in any object, document or view."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from autocode.jobs.operations.export.payload import Source
from autocode.jobs.operations.export.preview import preview
from autocode.jobs.operations.export.views import write_folder, write_zip
from autocode.jobs.testing.samples import SampleSet, write_samples
from export_context import export, line, objects_of


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> SampleSet:
    """Sessions with a secret of every form that the policy knows."""
    return write_samples(tmp_path_factory.mktemp("planted") / "samples", sessions=4, megabytes=0.1)


def forms_of(secret: str) -> set[bytes]:
    """Return the ways in which a text can stand in a file: plain, in JSON, in JSON in JSON, either way."""
    forms = {secret}
    for _ in range(2):
        forms |= {
            json.dumps(each, ensure_ascii=ascii_only)[1:-1]
            for each in set(forms)
            for ascii_only in (True, False)
        }
    return {form.encode() for form in forms}


def found_in(documents: Iterable[bytes], samples: SampleSet) -> list[str]:
    """Return the forms of the planted secrets that occur in *documents*."""
    text = b"\0".join(documents)
    return [secret.form for secret in samples.secrets if any(form in text for form in forms_of(secret.text))]


def test_the_search_finds_what_is_there(samples: SampleSet, tmp_path: Path) -> None:
    """Without redaction every planted secret is found, so the search is able to find them."""
    store, _ = export(samples.folder, tmp_path, redact=False)

    assert sorted(found_in(objects_of(store).values(), samples)) == sorted(s.form for s in samples.secrets)


def test_no_secret_in_any_object(samples: SampleSet, tmp_path: Path) -> None:
    """Every object that the export leaves in the store, the scan too, is free of every planted secret."""
    store, _ = export(samples.folder, tmp_path)

    objects = objects_of(store)

    assert len(objects) > 8
    assert found_in(objects.values(), samples) == []


def test_no_secret_in_any_view(samples: SampleSet, tmp_path: Path) -> None:
    """Folder, zip file and preview are free of every planted secret."""
    store, digest = export(samples.folder, tmp_path)

    folder = write_folder(store, digest, tmp_path)
    archive = write_zip(store, digest, tmp_path / "export.zip")
    shown = preview(lambda _name: samples.folder, [Source(root="samples")]).to_json()

    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert (
        found_in(
            [*files, archive.read_bytes(), json.dumps(shown).encode()],
            samples,
        )
        == []
    )
    assert shown["totals"]["redacted"] >= len(samples.secrets)


def test_a_secret_in_a_title_an_id_and_a_key_is_gone_too(tmp_path: Path) -> None:
    """Secrets in what the report repeats (ids, titles, types, models) and in object keys don't survive."""
    secret = "ghp_" + "7k" + "Ab3dEf6hIj9l" * 3  # 36 characters behind the prefix
    secret = secret[:40]
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a").write_bytes(
        line(sessionId=secret)
        + line(sessionId=secret, type="custom-title", customTitle=f"use {secret}")
        + line(sessionId=secret, type=secret)
        + line([{"type": secret, secret: secret}], sessionId=secret)
        + line(type="assistant", message={"role": "assistant", "model": secret, "content": "x", "usage": {}})
    )

    store, _ = export(folder, tmp_path)

    assert [digest for digest, data in objects_of(store).items() if secret.encode() in data] == []
