"""Who gets in: tokens, cookies, hosts and origins."""

from __future__ import annotations

import logging
import re
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from api_world import BASE, NOOP, Api, noop, opened
from autocode.jobs.api.settings import Settings, is_loopback
from autocode.jobs.ledger import access, schema
from autocode.jobs.ledger.access import Role
from autocode.jobs.ledger.database import Database
from ledger_world import contents, rows

pytest_plugins = ["fixtures_api"]

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
FROM_HERE = {"Origin": BASE}


def redeem(api: Api, code: str, headers: dict[str, str]) -> httpx.Response:
    """Press the button of the login page."""
    return api.send("POST", "/login", token=None, content=f"code={code}", headers=FORM | headers)


def log_in(api: Api, role: Role = Role.ADMIN) -> str:
    """Redeem a login as a browser does, and return the cookie."""
    answer = redeem(api, access.create_login(api.db, role=role), FROM_HERE)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    return answer.headers["set-cookie"].partition(";")[0]


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer nonsense",
        "Basic YWRtaW46YWRtaW4=",
        f"Bearer ajt_{'0' * 16}_{'0' * 64}",
        "Bearer a b",
        "Bearer \u00e9".encode("latin-1"),
    ],
)
def test_a_bad_token_is_a_401(api: Api, header: str | bytes) -> None:
    """Whatever isn't a known token is refused in the same words, which don't repeat it."""
    answer = api.send("GET", "/v1/jobs/job", token=None, headers={"Authorization": header})

    assert (answer.status_code, answer.json()["type"]) == (401, "token-invalid")
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert "000000" not in answer.text


@pytest.mark.parametrize("end", ["expired", "revoked"])
def test_a_token_that_ended_is_a_401(api: Api, end: str) -> None:
    """An expired and a revoked token are refused at once."""
    lifetime = timedelta(microseconds=1) if end == "expired" else None
    made = access.create_token(api.db, name="ci", role=Role.ADMIN, lifetime=lifetime)
    if end == "revoked":
        access.revoke(api.db, made.principal.token_id)

    assert api.get("/v1/jobs/job", token=made.text).status_code == 401


def test_a_job_of_others_does_not_exist(api: Api) -> None:
    """A token for some sessions can't tell a job of another session from one that doesn't exist."""
    api.post("/v1/jobs", noop(session_id="s-1"))
    scoped = access.create_token(api.db, name="guest", role=Role.VIEWER, sessions=["s-2"]).text

    theirs, none = (api.get(f"/v1/jobs/{job_id}", token=scoped) for job_id in ("job", "none"))

    assert (theirs.status_code, theirs.json()["error"]) == (404, "job not found")
    assert theirs.text.replace("'job'", "'none'") == none.text


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:4280", 200),
        ("localhost", 200),
        ("LOCALHOST.:80", 200),
        ("[::1]:4280", 200),
        ("127.8.8.8", 200),
        ("jobs.example:443", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example:4280", 403),
        ("jobs.example.evil.example", 403),
        ("127.0.0.1@evil.example", 403),
        ("", 403),
    ],
)
def test_only_our_own_names_are_answered(
    sqlite_ledger: Database, tmp_path: Path, host: str, status: int
) -> None:
    """A request for another host's name is refused, as a name that was bound to this machine would be."""
    with opened(sqlite_ledger, tmp_path, Settings(hosts=frozenset({"jobs.example"}))) as api:
        answer = api.get("/livez", token=None, headers={"Host": host})

    assert answer.status_code == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        (FROM_HERE, 202),
        ({"Origin": "http://127.0.0.1:9999"}, 403),
        ({"Origin": "http://localhost:4280"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://["}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 202),
        ({"Sec-Fetch-Site": "none"}, 202),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
    ],
)
def test_pages_of_others_are_refused(api: Api, headers: dict[str, str], status: int) -> None:
    """A request that a page of another origin sent is refused, even with a token; nothing is stored."""
    before = contents(api.db)

    answer = api.post("/v1/jobs", noop(), headers=headers)

    assert answer.status_code == status
    if status == 403:
        assert answer.json()["type"] == "request-refused"
        assert contents(api.db) == before


def test_a_link_from_elsewhere_opens_a_page(api: Api) -> None:
    """A link to us on another site, as in a mail, can be followed; a script there can't fetch it."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    followed = api.get("/login?code=x", token=None, headers=headers)

    fetched = api.get("/login?code=x", token=None, headers=headers | {"Sec-Fetch-Mode": "no-cors"})

    assert (followed.status_code, fetched.status_code) == (200, 403)


def test_looking_at_a_login_does_not_use_it_up(api: Api) -> None:
    """The page behind a login link shows a button, however often something fetches it."""
    code = access.create_login(api.db)
    before = contents(api.db)

    pages = [api.get(f"/login?code={code}", token=None) for _ in range(3)]

    assert [page.status_code for page in pages] == [200] * 3
    assert pages[0].text.count("<button") == 1
    assert contents(api.db) == before


def test_the_login_page_is_no_place_for_scripts(api: Api) -> None:
    """What stands in the link can't become part of the page."""
    page = api.get("/login", params={"code": '"><script>alert(1)</script>'}, token=None)

    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"


def test_a_login_opens_one_session(api: Api) -> None:
    """A redeemed login gives a strict cookie that lets the browser in; the same code again doesn't."""
    code = access.create_login(api.db)

    first, second = (redeem(api, code, FROM_HERE) for _ in range(2))

    cookie = first.headers["set-cookie"]
    assert (first.status_code, first.headers["location"], second.status_code) == (303, "/", 401)
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "set-cookie" not in second.headers
    assert "used before" in second.text
    front = api.get("/", token=None, headers={"Cookie": cookie.partition(";")[0]})
    assert (front.status_code, "queued" in front.text) == (200, True)


def test_nobody_is_logged_in_by_another_page(api: Api) -> None:
    """A login that doesn't show which page sent it is refused, and the code still works."""
    code = access.create_login(api.db)

    answers = [
        redeem(api, code, headers).status_code
        for headers in ({}, {"Origin": "https://evil.example"}, FROM_HERE)
    ]

    assert answers == [403, 403, 303]


def test_a_cookie_alone_changes_nothing(api: Api) -> None:
    """A request that changes something by a cookie must show that our own page sent it."""
    cookie = {"Cookie": log_in(api)}

    bare = api.post("/v1/jobs", noop(), token=None, headers=cookie)
    shown = api.post("/v1/jobs", noop(), token=None, headers=cookie | FROM_HERE)

    assert (bare.status_code, bare.json()["type"], shown.status_code) == (403, "request-refused", 202)


def test_logging_out_ends_the_session(api: Api) -> None:
    """After the button the cookie is no good any more, wherever it was copied to."""
    cookie = {"Cookie": log_in(api)}

    answer = api.send("POST", "/logout", token=None, headers=cookie | FROM_HERE)

    assert answer.status_code == 303
    assert api.get("/v1/jobs/job", token=None, headers=cookie).status_code == 401
    assert api.get("/", token=None, headers=cookie).status_code == 401


def test_an_admin_makes_logins(api: Api) -> None:
    """An admin gets the path of a login of a role; others get none."""
    answer = api.post("/v1/logins", {"role": "viewer"})

    page = api.get(answer.json()["path"], token=None)
    assert (answer.status_code, page.status_code) == (201, 200)
    (login,) = rows(api.db, schema.logins)
    assert login.role == "viewer"
    assert api.post("/v1/logins", {}, token=Role.OPERATOR).status_code == 403


def test_no_secret_is_logged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """Neither a token nor a login's code is in a log line or an answer, wherever a client put it."""
    token = api.tokens[Role.ADMIN]
    secret = token.rpartition("_")[2]
    code = access.create_login(api.db)
    caplog.set_level(logging.DEBUG)

    answers = [
        api.get(f"/v1/jobs/{token}"),
        api.get(f"/v1/jobs?token={token}"),
        api.get(f"/{token}/x", token=None),
        api.get(f"/login?code={code}", token=None),
        api.post("/v1/jobs", noop(token + "!")),
        api.post("/v1/jobs", {"kind": token, "payload": {token: 1}}),
        api.post("/v1/jobs", {"kind": NOOP, "payload": {token: 1}}),
        api.get("/livez", headers={"Host": token}),
    ]

    records = [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
    ours = [record for record in records if "autocode.jobs" in record]
    assert len(ours) >= len(answers)
    assert [text for text in ours if secret in text or code in text] == []
    assert [answer.text for answer in answers if secret in answer.text] == []


def test_each_request_is_one_record(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    """The access log has method, path without query, status, milliseconds and the job."""
    caplog.set_level(logging.INFO, logger="autocode.jobs.api.access")

    api.post("/v1/jobs", noop())
    api.get("/v1/jobs/job?secret=1")
    api.get("/livez", headers={"Host": "evil.example"})

    shown = [
        (each.method, each.path, each.status, each.job_id, each.ms >= 0)  # type: ignore[attr-defined]
        for each in caplog.records
        if each.name == "autocode.jobs.api.access"
    ]
    assert shown == [
        ("POST", "/v1/jobs", 202, "job", True),
        ("GET", "/v1/jobs/job", 200, "job", True),
        ("GET", "/livez", 403, None, True),
    ]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("localhost", True),
        ("10.0.0.1", False),
        ("::", False),
        ("", False),
    ],
)
def test_loopback_is_known(host: str, loopback: bool) -> None:
    """Only addresses that other machines can't reach count as loopback."""
    assert is_loopback(host) is loopback


def test_settings_do_not_show_the_password() -> None:
    """The settings can be printed."""
    shown = repr(Settings(prefect_api="http://127.0.0.1:1/api", prefect_auth="admin:s3cret"))

    assert re.search("s3cret", shown) is None
