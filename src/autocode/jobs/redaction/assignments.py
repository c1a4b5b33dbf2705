"""Rules for values that are secret because of the name they are assigned to."""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.policy import Rule

__all__ = ["assigned"]

_GAP: Final = r"""[\\"'`\t :]{0,12}"""
# Digits and a bracket after the sign are the end of a marker of ours, whose kind may read like a name.
_SIGN: Final = r"[:=](?![0-9]{1,12}\])>?=?[ \t]{0,4}"


def assigned(kind: str, names: tuple[str, ...], value: str, *, check: str, keys: bool = False) -> Rule:
    """Return the rule for a value that is assigned to one of *names*.

    ``name = value``, ``"name": value``, ``name := value`` and ``:name => value`` all count, and so does
    any longer name that ends in one of *names*.

    Args:
        kind: kind of the rule.
        names: names in lower case; ``_?`` stands for an underscore, a dash or nothing.
        value: pattern of what follows the sign, with the secret as its only group.
        check: the check that the value must pass.
        keys: whether an object key that ends in a name makes its string value a candidate, too.
    """
    spelt = "|".join(name.replace("_?", "[_-]?") for name in names)
    return Rule(
        kind,
        f"(?i:{spelt}){_GAP}{_SIGN}{value}",
        group=1,
        check=check,
        field=rf"(?i:[^\s]{{0,64}}(?:{spelt}))" if keys else "",
    )
