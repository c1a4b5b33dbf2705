"""Every setting: what it may be, where it was found, and what a wrong one is told.

A setting is looked for on the command line, in the environment, in ``config.toml`` of the data folder, and
last among the defaults; the first place that has it wins. An empty variable counts as not set. Nothing of
this is read when the module is imported.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from autocode.jobs.errors import UsageError
from autocode.jobs.settings import Home
from autocode.jobs.urls import (
    hosts_and_networks,
    http_url,
    listening_host,
    mail_address,
    masked,
    prefect_url,
    public_origin,
    sqlalchemy_url,
)

__all__ = ["FILE_NAME", "OTHER_VARIABLES", "Configuration", "Loaded", "Setting", "load", "settings"]

FILE_NAME: Final = "config.toml"
_PREFIX: Final = "AUTOCODE_"

OTHER_VARIABLES: Final = {
    "AUTOCODE_HOME": "The data folder; everything else is found through it.",
    "AUTOCODE_CRASH": "A crash point that strikes once: POINT[:NTH][=ACTION], or @FILE (module `crash`).",
    "AUTOCODE_TRACEBACK": "1: an error that nobody expected is shown with its traceback.",
    "AUTOCODE_POSTGRES_FOLDER": "Where the data folder's own PostgreSQL is kept, if not in the data folder.",
    "AUTOCODE_WORKER_GRACE": "As drain_seconds, for a worker that `prefect worker start` runs.",
    "AUTOCODE_WORKER_FLOWS": "More modules with flows that a worker imports ahead.",
}
"""What is read from the environment alone."""

_UNTOLD: Final = re.compile(
    r"AUTOCODE_(CLOCK|CRASH_TOKENS|RECONCILED|LEASH|CHROMIUM|FUZZ|SAMPLES|SEEDS|KILL_\w+|TEST_\w+)"
)
"""What processes of ours tell each other, and what tests and scripts of the project read."""

_ALSO: Final = {"prefect_api_url": "PREFECT_API_URL", "prefect_auth": "PREFECT_API_AUTH_STRING"}
"""Prefect's own variables, which count where ours are not set."""

_SECRET: Final = frozenset({"token", "prefect_auth", "smtp_password"})
"""Never shown, and no flags: a command line can be read by every user of the machine."""

_SECRET_INSIDE: Final = frozenset({"database_url", "prefect_api_url", "url"})
_NOTIFYING: Final = frozenset(
    {"public_url", "notify_allow", "smtp_host", "smtp_port", "smtp_security", "smtp_user"}
    | {"smtp_password_file", "smtp_from"}
)
_NO_FLAG: Final = (
    _SECRET | _NOTIFYING | {"url", "processes", "hosts", "kinds"} | {"request_rate", "request_burst"}
)


def _network_list(text: str) -> str:
    hosts_and_networks(text)
    return text


def _setting(default: Any, allowed: str, description: str, **limits: Any) -> Any:
    return Field(default, description=description, json_schema_extra={"allowed": allowed}, **limits)


_HttpUrl = Annotated[str, AfterValidator(http_url)]
_HTTP: Final = "an address that begins with http:// or https://"


def _absolute(text: str) -> str:
    # the processes of a service needn't have the folder that its user was in
    return str(Path(text).expanduser().absolute())


class Configuration(BaseModel):
    """The settings that hold, checked. Immutable."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    database_url: Annotated[str, AfterValidator(sqlalchemy_url)] | None = _setting(
        None,
        "postgresql://USER:PASSWORD@HOST:PORT/NAME",
        "The PostgreSQL that holds the ledger and Prefect's tables. Not set: one of the data folder's own.",
    )
    prefect_api_url: Annotated[str, AfterValidator(prefect_url)] | None = _setting(
        None,
        f"{_HTTP} and ends with /api",
        "The Prefect server that runs the jobs. Not set: one of the data folder's own.",
    )
    prefect_auth: str | None = _setting(
        None, "USER:PASSWORD", "The auth string of that Prefect server.", min_length=1
    )
    url: _HttpUrl | None = _setting(
        None, _HTTP, "The service that commands talk to. Not set: the one that runs on the data folder."
    )
    token: str | None = _setting(
        None, "a token of that service", "What lets commands into the service named by url.", min_length=1
    )
    host: Annotated[str, AfterValidator(listening_host)] = _setting(
        "127.0.0.1",
        "an IP address or a host name",
        "Where the API listens; 127.0.0.1: on this machine alone.",
    )
    port: int = _setting(
        4280, "a whole number from 0 to 65535; 0: any that is free", "The API's port.", ge=0, le=65535
    )
    tls_cert: Annotated[str, AfterValidator(_absolute)] | None = _setting(
        None,
        "a file in PEM form",
        "The API's certificate, with those between it and its root; then it speaks TLS.",
    )
    tls_key: Annotated[str, AfterValidator(_absolute)] | None = _setting(
        None, "a file in PEM form", "The private key of that certificate."
    )
    behind_proxy: Annotated[str, AfterValidator(public_origin)] | None = _setting(
        None,
        "https://NAME or https://NAME:PORT",
        "Where browsers and clients find the proxy with TLS that stands in front of the API.",
    )
    hosts: str = _setting(
        "",
        "host names, separated by commas",
        "Names beside the loopback ones by which browsers and clients may call the API.",
        pattern=r"^\s*([A-Za-z0-9.-]+\s*(,\s*[A-Za-z0-9.-]+\s*)*)?$",
    )
    request_rate: float = _setting(
        50.0,
        "a number from 0 to 100000; 0: any",
        "How many changes (submit, retry, cancel) a second one token may ask for in the long run.",
        ge=0,
        le=100_000,
    )
    request_burst: int = _setting(
        200,
        "a whole number from 1 to 100000",
        "How many of them it may ask for at once.",
        ge=1,
        le=100_000,
    )
    workers: int = _setting(
        2, "a whole number from 1 to 64", "How many jobs a worker runs side by side.", ge=1, le=64
    )
    niceness: int = _setting(
        10,
        "a whole number from 0 to 19",
        "By how much jobs yield the processor to everything else on the machine.",
        ge=0,
        le=19,
    )
    drain_seconds: float = _setting(
        5.0,
        "a number from 0 to 3600",
        "How long a worker that is told to stop lets its jobs run on before it hands them back.",
        ge=0,
        le=3600,
    )
    processes: int | None = _setting(
        None,
        "a whole number from 0 to 64",
        "How many processes read sessions in one export; 0 or 1: none. Not set: one a core.",
        ge=0,
        le=64,
    )
    kinds: str = _setting(
        "",
        "MODULE or MODULE:KIND, separated by commas",
        "Python modules with job kinds of your own, beside those that ship.",
        pattern=r"^\s*([\w.]+(:\w+)?\s*(,\s*[\w.]+(:\w+)?\s*)*)?$",
    )
    public_url: _HttpUrl | None = _setting(
        None, _HTTP, "Where people reach the API; what notifications link to. Not set: no links."
    )
    notify_allow: Annotated[str, AfterValidator(_network_list)] = _setting(
        "",
        "host names, addresses and networks (10.0.0.0/8), separated by commas",
        "Receivers of webhooks that may be reached although they aren't public.",
    )
    smtp_host: Annotated[str, AfterValidator(listening_host)] | None = _setting(
        None,
        "an IP address or a host name",
        "The server that sends e-mail; it needs smtp_from, too. Not set: none is sent.",
    )
    smtp_port: int = _setting(587, "a whole number from 1 to 65535", "Its port.", ge=1, le=65535)
    smtp_security: Literal["starttls", "tls", "none"] = _setting(
        "starttls", "starttls, tls or none", "How the connection to it is kept secret; none: it isn't."
    )
    smtp_user: str | None = _setting(
        None, "a user's name", "Who logs in there. Not set: nobody.", min_length=1
    )
    smtp_password: str | None = _setting(None, "that user's password", "The password.", min_length=1)
    smtp_password_file: str | None = _setting(
        None,
        "the path of a file",
        "The file that holds the password, if smtp_password isn't set.",
        min_length=1,
    )
    smtp_from: Annotated[str, AfterValidator(mail_address)] | None = _setting(
        None, "a mail address, alone", "Whom e-mail comes from."
    )
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        "info", "debug, info, warning or error", "What is logged: this level and the graver ones."
    )
    log_format: Literal["text", "json"] = _setting(
        "text", "text or json", "How a line of the logs is written."
    )


@dataclass(frozen=True, slots=True)
class Setting:
    """What is to be known about one setting."""

    name: str
    variables: tuple[str, ...]
    flag: str
    default: Any
    allowed: str
    description: str

    def shown(self, value: Any) -> str:
        """Return *value* as it may be shown: a secret only says that it is set."""
        if value is None:
            return "-"
        if self.name in _SECRET:
            return "***"
        return masked(value) if self.name in _SECRET_INSIDE else str(value)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The settings that hold, and the place that each comes from.

    Args:
        values: the settings.
        sources: for each name a flag, a variable, ``config.toml:LINE`` or ``default``.
    """

    values: Configuration
    sources: Mapping[str, str]

    def environ(self) -> dict[str, str]:
        """Return the variables that make a process of ours find these very settings."""
        found = {
            setting.variables[0]: str(getattr(self.values, setting.name))
            for setting in settings()
            if self.sources[setting.name] != "default"
        }
        return {name: text for name, text in found.items() if text != "None"}


def settings() -> tuple[Setting, ...]:
    """Return all settings in the order in which they are documented."""
    return tuple(
        Setting(
            name=name,
            variables=(f"{_PREFIX}{name.upper()}", *([_ALSO[name]] if name in _ALSO else [])),
            flag="" if name in _NO_FLAG else _flag(name),
            default=field.default,
            allowed=_extra(field)["allowed"],
            description=field.description or "",
        )
        for name, field in Configuration.model_fields.items()
    )


def load(
    home: Home, *, flags: Mapping[str, object] | None = None, environ: Mapping[str, str] | None = None
) -> Loaded:
    """Find every setting. Reads one file, changes nothing.

    Args:
        home: whose ``config.toml``.
        flags: values from the command line by name; ``None`` is one that was not given.
        environ: this process's environment where none is given.

    Raises:
        UsageError: a value or a name is wrong, or the file can't be read; it tells all of them at once, each
            with its place and what is allowed there.
    """
    environ = os.environ if environ is None else environ
    wrong: list[str] = list(_unknown_variables(environ))
    found: dict[str, Any] = {}
    sources = dict.fromkeys(Configuration.model_fields, "default")
    for place, name, value, strict in (
        *_from_file(home.path / FILE_NAME, wrong),
        *_from_environment(environ),
        *((_flag(name), name, each, False) for name, each in (flags or {}).items()),
    ):
        if value is None:
            continue
        try:
            found[name] = _checked(name, value, strict=strict)
            sources[name] = place
        except ValidationError:
            wrong.append(_refusal(place, name, value))
    if not wrong:
        wrong += _contradictions(Configuration.model_construct(**found))
    if wrong:
        raise UsageError(" ".join(wrong), hint="See docs/settings.md, or `autocode-jobs config --help`.")
    return Loaded(Configuration.model_construct(**found), sources)


def _from_file(path: Path, wrong: list[str]) -> Iterator[tuple[str, str, Any, bool]]:
    try:
        text = path.read_text("utf-8")
        table = tomllib.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        wrong.append(f"{path} can't be read: {error}.")
        return
    for name, value in table.items():
        place = f"{path}:{_line(text, name)}"
        if name in Configuration.model_fields:
            yield place, name, value, True
        else:
            wrong.append(f"{place}: no setting is called {name!r}{_guess(name, Configuration.model_fields)}.")


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, str, Any, bool]]:
    for setting in settings():
        # the strongest comes last
        for variable in reversed(setting.variables):
            yield variable, setting.name, environ.get(variable) or None, False


def _contradictions(values: Configuration) -> Iterator[str]:
    """Say which settings don't go together, though each of them could be right."""
    secret = values.smtp_password or values.smtp_password_file
    if values.smtp_host is not None and values.smtp_from is None:
        yield "smtp_host is set, and smtp_from isn't: e-mail has to come from somebody."
    if (values.smtp_user is None) != (secret is None):
        yield "Of smtp_user and its password (smtp_password or smtp_password_file) one is set, not both."
    here = values.smtp_host in {"localhost", "127.0.0.1", "::1"}
    if secret is not None and values.smtp_security == "none" and not here:
        yield "With smtp_security none the password would be sent for everybody to read."


def _unknown_variables(environ: Mapping[str, str]) -> Iterator[str]:
    known = [*OTHER_VARIABLES, *(each.variables[0] for each in settings())]
    for name in sorted(environ):
        if name.startswith(_PREFIX) and name not in known and not _UNTOLD.fullmatch(name):
            yield f"No setting is called {name}{_guess(name, known)}."


def _checked(name: str, value: Any, *, strict: bool) -> Any:
    # text of the environment is read as what it stands for; a value of the file has a type already
    return getattr(Configuration.model_validate({name: value}, strict=strict), name)


def _refusal(place: str, name: str, value: Any) -> str:
    told = "this value" if name in _SECRET | _SECRET_INSIDE else repr(value)
    return f"{place}: {name} can't be {told}; it takes {_extra(Configuration.model_fields[name])['allowed']}."


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _extra(field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


def _line(text: str, name: str) -> int:
    pattern = re.compile(rf"""\s*(\[\s*)?["']?{re.escape(name)}\b""")
    return next((n for n, line in enumerate(text.splitlines(), start=1) if pattern.match(line)), 1)


def _guess(name: str, known: Mapping[str, Any] | list[str]) -> str:
    # the prefix that all share would make any two names alike
    short = {each.removeprefix(_PREFIX): each for each in known}
    close = difflib.get_close_matches(name.removeprefix(_PREFIX), short, n=1, cutoff=0.6)
    return f"; did you mean {short[close[0]]}" if close else f" (there are {', '.join(known)})"
