"""A service that other machines reach: TLS of its own, or a proxy's; and what a browser is told then."""

from __future__ import annotations

from pathlib import Path

import pytest

from api_world import Api, noop, opened
from autocode.jobs.api.exposure import LOCAL, Exposure
from autocode.jobs.api.settings import Settings
from autocode.jobs.errors import UsageError
from autocode.jobs.ledger import access
from autocode.jobs.ledger.database import Database
from autocode.jobs.urls import public_origin
from certificates import certificate

pytest_plugins = ["fixtures_api"]

PUBLIC = "https://jobs.example"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Give a certificate and its key."""
    return certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "jobs.example"])  # noqa: S104 - refused
def test_other_machines_are_kept_out_without_tls(host: str) -> None:
    """An address that others reach is refused, with the three ways out; loopback isn't."""
    with pytest.raises(UsageError, match="other machines") as refused:
        LOCAL.check(host)

    assert all(way in refused.value.hint for way in ("127.0.0.1", "--tls-cert", "--behind-proxy"))
    Exposure(proxy=PUBLIC).check(host)
    LOCAL.check("127.0.0.1")


def test_a_certificate_is_tried_before_anything_starts(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """A pair that fits is taken; half of it, a missing file and a key of another are refused."""
    other = certificate(tmp_path)
    Exposure(*pair).check("0.0.0.0")  # noqa: S104 - with TLS

    for wrong in (
        Exposure(pair[0]),
        Exposure(None, pair[1]),
        Exposure(pair[0], tmp_path / "none"),
        Exposure(pair[0], other[1]),
        Exposure(pair[1], pair[0]),
    ):
        with pytest.raises(UsageError):
            wrong.check("127.0.0.1")


@pytest.mark.parametrize(
    ("text", "origin"),
    [
        ("https://jobs.example", PUBLIC),
        ("https://Jobs.Example/", PUBLIC),
        ("https://jobs.example:443", PUBLIC),
        ("https://jobs.example:8443", f"{PUBLIC}:8443"),
        ("http://jobs.example", None),
        ("https://jobs.example/jobs", None),
        ("https://u:p@jobs.example", None),
        ("https://", None),
        ("jobs.example", None),
        ("https://a b", None),
    ],
)
def test_a_public_origin_is_one_with_tls(text: str, origin: str | None) -> None:
    """Only https with a name and perhaps a port is an origin to stand behind."""
    if origin is None:
        with pytest.raises(ValueError):  # noqa: PT011 - only that it is one counts
            public_origin(text)
    else:
        assert public_origin(text) == origin


@pytest.fixture
def behind(sqlite_ledger: Database, tmp_path: Path) -> Api:
    """Give an application behind a proxy; it isn't started."""
    return Api(sqlite_ledger, tmp_path, Settings(public=PUBLIC))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "jobs.example"}, 202),
        ({"Host": "jobs.example", "Origin": PUBLIC}, 202),
        ({"Host": "127.0.0.1:4280", "Origin": PUBLIC}, 202),
        ({"Host": "127.0.0.1:4280", "Origin": "http://127.0.0.1:4280"}, 202),
        ({"Host": "jobs.example", "Origin": "http://jobs.example"}, 403),
        ({"Host": "jobs.example", "Origin": "https://jobs.example:8443"}, 403),
        ({"Host": "jobs.example", "Origin": "https://evil.example"}, 403),
        ({"Host": "evil.example", "Origin": PUBLIC}, 403),
        ({"Host": "evil.example", "X-Forwarded-Host": "jobs.example"}, 403),
        ({"Host": "127.0.0.1:4280", "Origin": "https://evil.example", "X-Forwarded-Proto": "https"}, 403),
    ],
)
def test_a_proxy_is_known_by_its_settings_alone(behind: Api, headers: dict[str, str], status: int) -> None:
    """Its host and origin are ours; what a header claims to have been forwarded counts for nothing."""
    with behind:
        assert behind.post("/v1/jobs", noop(), headers=headers).status_code == status


@pytest.mark.parametrize(("public", "secure"), [(PUBLIC, True), (None, False)])
def test_a_cookie_behind_tls_is_for_tls_alone(
    sqlite_ledger: Database, tmp_path: Path, public: str | None, secure: bool
) -> None:
    """The cookie has Secure behind a proxy, and HttpOnly and SameSite=strict always."""
    with opened(sqlite_ledger, tmp_path, Settings(public=public)) as api:
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://127.0.0.1:4280"}
        code = access.create_login(api.db)
        answer = api.send("POST", "/login", token=None, content=f"code={code}", headers=form)

    flags = answer.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(flags)
    assert ("Secure" in flags) is secure
