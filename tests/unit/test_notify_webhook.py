"""Webhooks to real receivers: signed, pinned to an address that was judged, bounded in time, never led on."""

from __future__ import annotations

import ipaddress
import json
import socket
import time
from collections.abc import Sequence
from typing import Any

import httpcore
import pytest

from autocode.jobs.errors import UsageError
from autocode.jobs.ledger.deliveries import ATTEMPTS, Verdict
from autocode.jobs.notifications import pinned
from autocode.jobs.notifications.address import AddressRefused, Allowed, check_url, judged, resolve
from autocode.jobs.notifications.event import body_of
from autocode.jobs.notifications.pauses import BACKOFF, LONGEST_WAIT, pause_after, told_to_wait
from autocode.jobs.notifications.webhook import Webhooks, sign
from notify_world import SECRET, notice, receiving, verified

pytest_plugins = ["fixtures_notify"]

HERE = Allowed.of("127.0.0.1")


def sent(url: str, *, allowed: Allowed = HERE, **options: Any) -> Verdict:
    """Send one message to *url*."""
    return Webhooks(allowed, **options).send(notice(url))


def test_a_receiver_can_verify_what_it_gets() -> None:
    """The signature is that of the specification, over the very bytes, and no other secret makes it."""
    with receiving() as receiver:
        verdict = sent(receiver.url)

    [got] = receiver.got
    other = SECRET.replace("MDEy", "MDEz")
    assert verdict == Verdict(done=True)
    assert got.headers["content-type"] == "application/json"
    assert verified(SECRET, got.headers, got.body, now=time.time())
    assert not verified(other, got.headers, got.body, now=time.time())
    assert not verified(SECRET, got.headers, got.body + b" ", now=time.time())
    assert not verified(SECRET, {**got.headers, "webhook-id": "msg_x"}, got.body, now=time.time())


def test_the_signature_of_the_specification_is_made() -> None:
    """The example of the specification's own test suite comes out as it stands there."""
    body = b'{"test": 2432232314}'

    made = sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)

    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_body_is_the_event_and_the_same_in_every_try() -> None:
    """It has the shape of CloudEvents and the job as its data; only time and signature move with a try."""
    with receiving() as receiver:
        for attempt, at in ((1, 1_000_000.0), (2, 1_000_900.0)):
            Webhooks(HERE, now=lambda at=at: at).send(notice(receiver.url, attempt=attempt))  # type: ignore[misc]

    first, second = receiver.got
    event = json.loads(first.body)
    assert (event["specversion"], event["id"], event["type"]) == ("1.0", "0123456789ab:7", "job.dead")
    assert (event["subject"], event["time"]) == ("nightly-7", "2026-01-05T03:30:00.000Z")
    assert event["data"]["reason"] == "permanent"
    assert (first.body, first.id) == (second.body, second.id)
    assert first.headers["webhook-timestamp"] == "1000000"
    assert second.headers["webhook-timestamp"] == "1000900"


def test_a_test_is_about_no_job() -> None:
    """Its data says that it is one, and it has no subject."""
    event = json.loads(body_of(notice("", type="job.test", job_id=None, cursor=None, data=None)))

    assert (event["type"], event["data"]) == ("job.test", {"test": True})
    assert "subject" not in event


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_success_is_one(status: int) -> None:
    """Each status of the second hundred says that the receiver has it."""
    with receiving(status) as receiver:
        assert sent(receiver.url).done


@pytest.mark.parametrize("status", [400, 401, 404, 409, 429, 500, 503])
def test_a_refusal_is_tried_again(status: int) -> None:
    """Whatever else is answered is told with its status, and tried again after a pause."""
    with receiving(status) as receiver:
        verdict = sent(receiver.url)

    assert (verdict.done, verdict.gone, verdict.error) == (False, False, f"answered {status}")
    assert 4.0 <= (verdict.retry_in or 0) <= 5.0


def test_who_is_gone_is_not_tried_again() -> None:
    """410 says that nothing is to come any more."""
    with receiving(410) as receiver:
        verdict = sent(receiver.url)

    assert (verdict.done, verdict.gone, verdict.retry_in) == (False, True, None)


def test_a_redirect_is_not_followed() -> None:
    """A receiver can't lead the request on to another address, not even one that is allowed."""
    with receiving() as inner, receiving((307, {"Location": inner.url})) as receiver:
        verdict = sent(receiver.url)

    assert (verdict.done, inner.got) == (False, [])
    assert verdict.error == "answered 307, and redirects aren't followed"


def test_retry_after_is_heeded() -> None:
    """Seconds and a date both count, within bounds; what can't be read counts as nothing."""
    with receiving((503, {"Retry-After": "120"})) as receiver:
        assert sent(receiver.url).retry_in == 120.0
    assert told_to_wait("0", 9.0) == BACKOFF.first
    assert told_to_wait("99999999", 9.0) == LONGEST_WAIT
    assert told_to_wait("Wed, 21 Oct 2015 07:28:00 GMT", 9.0) == BACKOFF.first
    assert told_to_wait("Wed, 21 Oct 2099 07:28:00 GMT", 9.0) == LONGEST_WAIT
    assert [told_to_wait(bad, 9.0) for bad in ("soon", "", "-5", "1e9", "٣", None)] == [9.0] * 6


def test_the_pauses_take_about_a_day() -> None:
    """They grow, and the last try comes 18 to 25 hours after the first."""
    longest = [pause_after(n, lambda: 0.0) for n in range(1, ATTEMPTS)]
    shortest = [pause_after(n, lambda: 1.0) for n in range(1, ATTEMPTS)]

    assert longest == sorted(longest)
    assert 18 * 3600 < sum(shortest) < sum(longest) < 25 * 3600


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would connect to wherever it likes."""
    with receiving() as proxy, receiving() as receiver:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        verdict = sent(receiver.url)

    assert (verdict.done, len(receiver.got), proxy.got) == (True, 1, [])


def test_nobody_listens() -> None:
    """A refused connection is told as one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        verdict = sent(f"http://127.0.0.1:{taken.getsockname()[1]}/")

    assert (verdict.done, verdict.error) == (False, "the connection was refused")
    assert verdict.retry_in is not None


def test_what_answers_is_no_http_server() -> None:
    """A receiver that hangs up, or says something else, is tried again."""
    with receiving(lambda handler: handler.connection.close()) as receiver:
        hung_up = sent(receiver.url)
    with receiving(lambda handler: handler.wfile.write(b"220 mail here\r\n\r\n")) as receiver:
        other = sent(receiver.url)

    for verdict in (hung_up, other):
        assert (verdict.done, verdict.retry_in is not None) == (False, True)


def _drip(handler: Any) -> None:
    """Answer a byte at a time, each in good time, and never come to an end."""
    try:
        while True:
            handler.wfile.write(b"H")
            handler.connection.settimeout(0.05)
            try:
                if not handler.connection.recv(1):
                    return
            except TimeoutError:
                continue
    except OSError:
        return


@pytest.mark.parametrize("slow", [_drip, lambda handler: handler.rfile.read(1)])
def test_a_slow_receiver_has_its_time_and_no_more(slow: Any) -> None:
    """Neither one that says nothing nor one that says a little all the time holds a try up for longer."""
    with receiving(slow) as receiver:
        began = time.monotonic()
        verdict = sent(receiver.url, total=0.5)
        took = time.monotonic() - began

    assert (verdict.done, took < 10) == (False, True)
    assert verdict.error in {"no answer in time", "the connection ended without an HTTP answer"}


def test_a_huge_answer_is_not_read() -> None:
    """What a receiver sends beside its status is nobody's concern."""

    def flood(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65_536)
        except OSError:
            return

    with receiving(flood) as receiver:
        assert sent(receiver.url).done


REFUSED = [
    "127.0.0.1",
    "127.9.9.9",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",  # noqa: S104 - one that is refused
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "192.0.2.1",
    "198.18.0.1",
    "::1",
    "::",
    "fe80::1",
    "fe80::1%1",
    "fc00::1",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::10.0.0.1",
    "2002:7f00:1::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
]


@pytest.mark.parametrize("address", REFUSED)
def test_what_is_not_public_is_refused(address: str) -> None:
    """Loopback, private, link-local, shared, multicast, reserved: also where IPv6 only wraps it."""
    with pytest.raises(AddressRefused) as caught:
        judged("hooks.example", 443, Allowed(), lambda *_: [address])

    assert address not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34"]
)
def test_what_is_public_is_not(address: str) -> None:
    """A public address may be sent to."""
    assert judged("hooks.example", 443, Allowed(), lambda *_: [address]) == [
        str(ipaddress.ip_address(address))
    ]


def test_one_bad_address_spoils_all() -> None:
    """A name that leads inside as well as outside is refused: which of the two is taken would be luck."""
    with pytest.raises(AddressRefused):
        judged("hooks.example", 443, Allowed(), lambda *_: ["93.184.216.34", "10.0.0.1"])


@pytest.mark.parametrize(
    ("allowed", "address", "fits"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "192.168.0.1", False),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.1", "127.0.0.2", False),
        ("::1", "::1", True),
        ("Hooks.Example", "192.168.0.1", True),
        ("other.example, 10.0.0.0/8", "192.168.0.1", False),
    ],
)
def test_what_was_allowed_is_not_refused(allowed: str, address: str, fits: bool) -> None:
    """A network, an address or a name of the settings may be sent to, and nothing beside it."""
    try:
        judged("hooks.example", 443, Allowed.of(allowed), lambda *_: [address])
    except AddressRefused:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize("host", ["127.0.0.1", "2130706433", "0x7f.1", "127.1", "[::1]", "localhost"])
def test_every_spelling_of_this_machine_is_refused(host: str) -> None:
    """The address that a name means is judged, and not how the name is written."""
    with receiving() as receiver:
        verdict = sent(f"http://{host}:{receiver.port}/", allowed=Allowed())

    assert (verdict.done, receiver.got) == (False, [])
    assert "isn't public" in verdict.error or "no address" in verdict.error


def test_a_name_that_changes_its_mind_changes_nothing() -> None:
    """The name is resolved once, and the connection goes to what was judged, under the name's own Host."""
    answers = [["127.0.0.1"], ["127.0.0.2"]]
    asked: list[str] = []

    def resolver(host: str, _port: int) -> Sequence[str]:
        asked.append(host)
        return answers.pop(0)

    with receiving() as receiver:
        url = f"http://rebinding.example:{receiver.port}/hook"
        first = sent(url, resolver=resolver)
        second = sent(url, resolver=resolver)

    assert asked == ["rebinding.example"] * 2
    assert (first.done, second.done, len(receiver.got)) == (True, False, 1)
    assert receiver.got[0].headers["host"] == f"rebinding.example:{receiver.port}"


def test_the_next_address_is_tried() -> None:
    """Where a host has several addresses, one that doesn't answer isn't the end."""
    with receiving() as receiver:
        url = f"http://two.example:{receiver.port}/"
        verdict = sent(url, allowed=Allowed.of("127.0.0.0/8"), resolver=lambda *_: ["127.0.0.9", "127.0.0.1"])

    assert verdict.done


def test_a_certificate_must_be_for_the_name(tls_receiver: tuple[int, Any]) -> None:
    """The pinned address changes nothing about whom the certificate must be for."""
    port, context = tls_receiver

    def send(host: str) -> int:
        headers = [("Host", host), ("Content-Length", "2")]
        url = f"https://{host}:{port}/"
        return pinned.post(url, headers, b"{}", addresses=["127.0.0.1"], tls=lambda: context).status

    assert send("hooks.example") == 204
    with pytest.raises(httpcore.ConnectError, match="certificate"):
        send("other.example")


@pytest.mark.parametrize(
    "url",
    [
        "https://hooks.example.com/a?b=c",
        "http://hooks.example.com:8080",
        "https://[2606:2800::1]/x",
        "https://1.2.3.4/",
    ],
)
def test_a_url_can_be_one(url: str) -> None:
    """Any http or https URL with a host."""
    assert check_url(url) == url


@pytest.mark.parametrize(
    "url",
    [
        "",
        "hooks.example.com",
        "ftp://hooks.example.com",
        "file:///etc/passwd",
        "https://",
        "https://user@hooks.example.com",
        "https://user:secret@hooks.example.com",
        "https://hooks.example.com/#part",
        "https://hooks.example.com/a b",
        "https://hooks.example.com/\r\nX: y",
        "https://hooks.example.com:99999/",
        "https://[::1/",
        "https://hö.example/",
        "https://a,b/",
        "https://hooks.example.com/" + "x" * 2_000,
    ],
)
def test_a_url_that_can_not_be_one_is_refused(url: str) -> None:
    """Other schemes, no host, a login in it, or characters that no URL has."""
    with pytest.raises(UsageError):
        check_url(url)


def test_a_name_without_an_address_is_told() -> None:
    """A name that nobody knows is no reason to give up: it may be back."""
    verdict = sent("https://hooks.invalid/", resolver=lambda *_: [])

    assert (verdict.error, verdict.retry_in is not None) == ("the host has no address", True)


def test_the_machines_resolver_is_asked() -> None:
    """A name of this machine is found, and one that can't be a name is none."""
    assert "127.0.0.1" in resolve("localhost", 80)
    with pytest.raises(OSError, match=r".*"):
        resolve("a" * 300, 80)
