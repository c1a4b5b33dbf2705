"""Rules for values that are secret because of the name they are assigned to."""

from __future__ import annotations

from typing import Final

from autocode.jobs.redaction.policy import Rule

__all__ = ["assigned", "named", "option"]

# grep colours the name that was searched for; the codes stand between it and the sign.
_COLOR: Final = r"(?:\x1b|\\{1,4}(?:u001[bB]|x1[bB]|033|e))\[[0-9;]{0,12}[mK]"
_GAP: Final = rf"""(?:[\\"'`\t :]|{_COLOR}){{0,12}}"""
# Digits and a bracket after the sign are the end of a marker of ours, whose kind may read like a name.
_SIGN: Final = rf"[:=](?![0-9]{{1,12}}\])>?=?(?:[ \t]|{_COLOR}){{0,6}}"


def assigned(
    kind: str, names: tuple[str, ...], value: str, *, check: str, keys: bool = False, rule: str = ""
) -> Rule:
    """Return the rule for a value that is assigned to one of *names*.

    ``name = value``, ``"name": value``, ``name := value`` and ``:name => value`` all count, and so does
    any longer name that ends in one of *names*.

    Args:
        kind: kind of the rule.
        names: names in lower case; ``_?`` stands for an underscore, a dash or nothing.
        value: pattern of what follows the sign, with the secret as its only group.
        check: the check that the value must pass.
        keys: whether an object key that ends in a name makes its string value a candidate, too.
        rule: id of the rule.
    """
    spelt = "|".join(name.replace("_?", "[_-]?") for name in names)
    return Rule(
        kind,
        f"(?i:{spelt}){_GAP}{_SIGN}{value}",
        group=1,
        check=check,
        field=rf"(?i:[^\s]{{0,64}}(?:{spelt}))" if keys else "",
        id=rule,
    )


def named(kind: str, names: tuple[str, ...], value: str, *, check: str, rule: str) -> Rule:
    """Return the rule for a list's entry that has name and value as its members.

    ``{"name": "DB_PASSWORD", "value": "…"}`` as text, and ``- name: DB_PASSWORD`` with ``value: …`` on the
    next line, as manifests of Kubernetes and answers of cloud services list an environment.

    Args:
        kind: kind of the rule.
        names: as for :func:`assigned`.
        value: pattern of the value, with the secret as its only group.
        check: the check that the value must pass.
        rule: id of the rule.
    """
    spelt = "|".join(name.replace("_?", "[_-]?") for name in names)
    quote = r"""[\\"'`]{0,8}"""
    return Rule(
        kind,
        rf"(?i:name|key){quote}[ \t]{{0,4}}:[ \t]{{0,4}}{quote}[A-Za-z0-9_.-]{{0,64}}(?i:{spelt}){quote}"
        rf"(?:[,\s+-]|\\n){{1,48}}{quote}(?i:value){quote}[ \t]{{0,4}}:[ \t]{{0,4}}{quote}{value}",
        group=1,
        check=check,
        id=rule,
    )


def option(names: tuple[str, ...], value: str, *, check: str, rule: str) -> Rule:
    """Return the rule for the argument of a command-line option: ``--db-password X``, ``"--token", "X"``.

    Args:
        names: names that the option's may end in, in lower case.
        value: pattern of the argument, with the secret as its only group.
        check: the check that the argument must pass.
        rule: id of the rule.
    """
    quote = r"""[\\"'`]{0,8}"""
    return Rule(
        "command-password",
        rf"--(?:[A-Za-z0-9]{{1,20}}[_-]){{0,3}}(?i:{'|'.join(names)})"
        # a path, a file behind @ and the next option are no secrets
        rf"(?:[ \t]{{1,4}}|{quote},[ \t]{{0,4}}){quote}(?![/@-]){value}",
        group=1,
        check=check,
        id=rule,
    )
