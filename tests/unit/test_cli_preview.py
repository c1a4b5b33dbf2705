"""``export --preview``, ``--rules`` and ``--allow-list``, as people call them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from autocode.jobs.cli.export import Options, preview
from autocode.jobs.errors import UsageError
from autocode.jobs.testing.fake_secrets import fake_secret
from export_context import line

RULES = """
[[rules]]
id = "acme"
pattern = 'acme-[0-9]{4}'
examples = ["acme-1234"]
counter_examples = ["acme-x"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder with one session that has a token and a number of acme's; there is no data folder."""
    monkeypatch.setenv("AUTOCODE_HOME", str(tmp_path / "home"))
    token = fake_secret("github-token", random.Random(1))[1]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "s").write_bytes(line(f"use {token} and acme-1234"))
    (tmp_path / "rules.toml").write_text(RULES)
    return tmp_path / "in"


def test_the_preview_shows_rule_place_and_surroundings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each redaction has its rule, record, pointer and excerpt; the sum has them by rule and place."""
    preview(Options(paths=(folder,), rules=folder.parent / "rules.toml"))

    shown = capsys.readouterr().out
    assert "acme in record 1 (message) at /content/0/text" in shown
    assert "use [REDACTED:github-token:1] and [REDACTED:acme:1]" in shown
    assert "1 github-token in message at /content/*/text" in shown
    assert "ghp_" not in shown
    assert not (folder.parent / "home").exists()


def test_the_rules_of_the_data_folder_count_without_the_option(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """redaction.toml in the data folder is taken; --json prints the frozen rules for a deployment."""
    (folder.parent / "home").mkdir()
    (folder.parent / "home" / "redaction.toml").write_text(RULES)

    preview(Options(paths=(folder,), json=True))

    shown = json.loads(capsys.readouterr().out)
    assert [place["rule"] for place in shown["files"][0]["redaction"]["places"]] == ["github-token", "acme"]
    assert shown["rules"]["rules"][0]["pattern"] == "acme-[0-9]{4}"
    assert "examples" not in shown["rules"]["rules"][0]


def test_what_allow_list_prints_can_be_pasted_into_the_rules(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output is TOML; with it in the rules file nothing is redacted any more."""
    rules = folder.parent / "rules.toml"
    preview(Options(paths=(folder,), rules=rules, allow_list=True))
    printed = capsys.readouterr().out

    rules.write_text(RULES + printed)
    preview(Options(paths=(folder,), rules=rules, json=True))

    assert json.loads(capsys.readouterr().out)["totals"]["redacted"] == 0
    assert printed.count("[[allow]]") == 2
    assert "acme-1234" not in printed
    assert "ghp_" not in printed


def test_rules_without_redaction_are_refused(folder: Path) -> None:
    """--rules and --no-redact contradict each other; a broken file stops before anything is read."""
    with pytest.raises(UsageError, match="--no-redact"):
        preview(Options(paths=(folder,), redact=False, rules=folder.parent / "rules.toml"))
    (folder.parent / "rules.toml").write_text(RULES.replace("{4}", "{4}(?=x)"))
    with pytest.raises(UsageError, match="rule 'acme'"):
        preview(Options(paths=(folder,), rules=folder.parent / "rules.toml"))
