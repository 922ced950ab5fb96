"""The client: settings, and answers that cannot be used."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.relatives.api_server import Answer

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.relatives.fetch import web
from medteb_mteb.curation.relatives.fetch.web import RequestSettings, Web, parse_json_body

ME = "me@example.org"
ASK = {"format": "json", "fields": "OfficialTitle", "pageSize": 2}


@pytest.fixture
def slept():
    return []


@pytest.fixture
def client(apis, slept):
    settings = RequestSettings(ME, per_second=100, attempts=4, timeout=5)
    return Web(apis.url, settings, secret={"api_key": "s3cret"}, sleep=slept.append)


def ask(client):
    return client.get("/studies", ASK, parse_json_body)[1]["studies"]


def test_requests_name_the_program_and_the_contact(client, apis):
    assert len(ask(client)) == 2
    ((target, headers),) = apis.requests
    assert headers["User-Agent"].startswith("medteb/")
    assert headers["User-Agent"].endswith(f"({ME})")
    assert "api_key=s3cret" in target


def test_the_least_pause_between_requests_is_kept(apis, slept):
    client = Web(apis.url, RequestSettings(ME, per_second=0.5), sleep=slept.append)
    ask(client), ask(client)
    assert len(slept) == 1
    assert 1.5 < slept[0] <= 2


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_asks_for_a_pause_gets_it(client, apis, slept, status):
    apis.faults["/studies"] = [Answer(b"slow down", status, {"Retry-After": "7"})]
    assert len(ask(client)) == 2
    assert max(slept) == 7
    assert len(apis.requests) == 2


def test_a_server_that_asks_for_too_long_a_pause_is_left_alone(client, apis, slept):
    apis.faults["/studies"] = [Answer(b"", 429, {"Retry-After": "86400"})]
    with pytest.raises(BuildError, match=r"requests a pause of 86,400 seconds \(status 429\)"):
        ask(client)
    assert max(slept, default=0) < 1


def test_a_server_that_stays_down_is_given_up_with_growing_pauses(client, apis, slept):
    apis.faults["/studies"] = [Answer(b"", 502)] * 9
    with pytest.raises(BuildError, match=r"no usable answer in 4 attempts \(status 502\)") as caught:
        ask(client)
    assert len(apis.requests) == 4
    pauses = [pause for pause in slept if pause > 0.02]
    assert [round(pause / 2**i, 6) >= 0.5 for i, pause in enumerate(pauses)] == [True] * 3
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_refused_request_is_not_repeated(client, apis, zipped):
    apis.zipped = zipped
    apis.faults["/studies"] = [Answer(b"unknown\x1b[2J field", 400)]
    with pytest.raises(BuildError, match=r"refused with status 400: unknown\\x1b\[2J field") as caught:
        ask(client)
    assert len(apis.requests) == 1
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "where", ["https://example.org/studies", "http://127.0.0.1:1/x", "file:///etc/passwd"]
)
def test_a_redirect_to_another_server_is_refused(client, apis, where):
    apis.faults["/studies"] = [Answer(b"", 302, {"Location": where})]
    with pytest.raises(BuildError, match=r"another server|status 302"):
        ask(client)
    assert len(apis.requests) == 1


def test_a_redirect_on_the_same_server_is_followed(client, apis):
    apis.faults["/studies"] = [
        Answer(b"", 302, {"Location": "/studies?format=json&fields=OfficialTitle&pageSize=1"})
    ]
    assert len(ask(client)) == 1


def test_an_html_page_in_place_of_json_is_requested_again(client, apis):
    apis.faults["/studies"] = [Answer(b"<html>We are back soon</html>")]
    assert len(ask(client)) == 2
    apis.faults["/studies"] = [Answer(b"<html>We are back soon</html>")] * 4
    with pytest.raises(BuildError, match=r"not JSON and begins with '<html>We are back"):
        ask(client)


@pytest.mark.parametrize("zipped", [False, True])
def test_a_body_that_was_cut_is_asked_for_again(client, apis, zipped):
    apis.zipped = zipped
    apis.faults["/studies"] = [Answer(b'{"studies": [1, 2, 3, 4]}', cut=6)]
    assert len(ask(client)) == 2
    assert len(apis.requests) == 2


def test_a_packed_body_that_ends_early_is_asked_for_again(client, apis):
    packed = web.zlib.compress(b'{"studies": []}', wbits=31)[:-9]
    apis.faults["/studies"] = [Answer(packed, headers={"Content-Encoding": "gzip"})]
    assert len(ask(client)) == 2


def test_a_body_in_an_unknown_encoding_is_asked_for_again(client, apis):
    apis.faults["/studies"] = [Answer(b"x", headers={"Content-Encoding": "br"})]
    assert len(ask(client)) == 2


@pytest.mark.parametrize("zipped", [False, True])
def test_a_body_that_is_too_large_is_refused(client, apis, monkeypatch, zipped):
    monkeypatch.setattr(web, "MAX_BODY_BYTES", 10_000)
    apis.zipped = zipped
    apis.faults["/studies"] = [Answer(b" " * 5_000_000)]
    with pytest.raises(BuildError, match="more than 10,000 bytes; it is refused"):
        ask(client)
    assert len(apis.requests) == 1


def test_json_that_nests_too_deeply_does_not_crash(client, apis):
    apis.faults["/studies"] = [Answer(b"[" * 100_000)] * 4
    with pytest.raises(BuildError, match="no usable answer in 4 attempts"):
        ask(client)


def test_a_server_that_is_not_there_is_one_clear_error(slept):
    client = Web("http://127.0.0.1:9", RequestSettings(ME, 100, attempts=2), sleep=slept.append)
    with pytest.raises(BuildError, match=r"in 2 attempts \(URLError: .*refused"):
        ask(client)


@pytest.mark.parametrize("contact", ["", "me", "a@b.c\r\nHost: x", "me @example.org", "ftp://x.org"])
def test_an_invalid_contact_is_refused(contact):
    with pytest.raises(BuildError, match="contact must be an e-mail address or a web page"):
        RequestSettings(contact, 1)


@pytest.mark.parametrize("pace", [0, -1, 1000])
def test_an_impossible_pace_is_refused(pace):
    with pytest.raises(BuildError, match="Requests per second"):
        RequestSettings(ME, pace)


@pytest.mark.parametrize("base", ["http://example.org", "file:///etc", "example.org", "https://"])
def test_addresses_other_than_https_are_refused(base):
    with pytest.raises(BuildError, match="is not an https address"):
        Web(base, RequestSettings(ME, 1))
