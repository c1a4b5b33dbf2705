"""Rules for values that are secret because of the name they are assigned to.

The patterns start at the sign (``=`` or ``:``) and look back at the name: the engine then searches for one
rare character, many times faster than for every letter that a name could begin with.
"""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.policy import Rule

__all__ = ["assigned"]

_GAP: Final = r"""[\\"'`\t :]"""
_LONGEST_GAP: Final = 8
# The last six characters of every name, which is what a probe looks back at; assigned() checks it.
_TAILS: Final = "(?:secret|ssword|passwd|phrase|.token|...pwd|...key)"
_ENDINGS: Final = ("secret", "password", "passwd", "passphrase", "token", "pwd", "key")


def assigned(
    kind: str, names: tuple[str, ...], value: str, *, check: str, keys: bool = False
) -> tuple[Rule, ...]:
    """Return the rules, one for each sign, for a value that is assigned to one of *names*.

    ``name = value``, ``"name": value``, ``name := value`` and ``:name => value`` all count, and so does
    any longer name that ends in one of *names*.

    Args:
        kind: kind of the rules.
        names: names in lower case; ``_?`` stands for an underscore, a dash or nothing.
        value: pattern of what follows the sign, with the secret as its only group.
        check: the check that the value must pass.
        keys: whether an object key that ends in a name makes its string value a candidate, too.

    Raises:
        ValueError: a name ends in none of the words that the probes look for.
    """
    if not all(name.endswith(_ENDINGS) for name in names):
        raise ValueError(f"{names} must end in one of {_ENDINGS}")
    field = (
        rf"(?i:[^\s]{{0,64}}(?:{'|'.join(name.replace('_?', '[_-]?') for name in names)}))" if keys else ""
    )
    return tuple(
        Rule(kind, _after(sign, names) + value, probes=(_probe(sign),), group=1, check=check, field=field)
        for sign in "=:"
    )


def _after(sign: str, names: tuple[str, ...]) -> str:
    by_size: dict[int, list[str]] = {}
    for name in names:
        for spelt in {name.replace("_?", ""), name.replace("_?", "[_-]")}:
            by_size.setdefault(len(spelt.replace("[_-]", "_")), []).append(spelt)
    alternatives = ["|".join(sorted(spelt)) for _size, spelt in sorted(by_size.items())]
    ends = "".join(sorted({name[-1] + name[-1].upper() for name in names}))
    back = "|".join(
        rf"(?<=[{ends}]{_GAP}{{{gap}}}{sign})(?:"
        + "|".join(rf"(?<=(?i:{spelt}){_GAP}{{{gap}}}{sign})" for spelt in alternatives)
        + ")"
        for gap in range(_LONGEST_GAP + 1)
    )
    # Digits and a bracket after the sign are the end of a marker of ours, whose kind may read like a name.
    return rf"{sign}(?<=[{ends}{_GAP[1:]}{sign})(?:{back})(?![0-9]{{1,12}}\])>?=?[ \t]{{0,4}}"


def _probe(sign: str) -> str:
    """Past two characters of gap it no longer asks for the name, which keeps it short and still complete."""
    return (
        rf"(?s){sign}(?<=[tdeny{_GAP[1:]}{sign})(?:"
        + "|".join(rf"(?<={_TAILS}{_GAP}{{{size}}}{sign})" for size in range(3))
        + rf"|(?<={_GAP}{{3}}{sign}))"
    )
