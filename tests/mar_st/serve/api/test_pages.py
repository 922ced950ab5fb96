"""Tests of the search page and the page of the API."""

from __future__ import annotations

import html
import itertools
import re
import shlex
from urllib.parse import urlsplit

import pytest

from mar_st.serve.api.pages import docs_page
from tests.mar_st.serve.fakes import FakeDocumentEncoder

HOSTILE = "<script>alert(1)</script> & `code`"


def test_pages_load_nothing_from_other_hosts(client):
    for path in ("/", "/docs", "/page.js", "/page.css"):
        response = client.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http://HOST" in response.text or "://" not in response.text
        assert "<script>" not in response.text
        assert " style=" not in response.text
        assert " onclick" not in response.text
    assert "/v1/embeddings" in client.get("/docs").text
    tag = client.get("/").headers["etag"]
    assert client.get("/", headers={"if-none-match": tag}).status_code == 304


@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", W/{}', '{} , "other"'])
def test_a_page_that_did_not_change_is_not_sent_again(client, form):
    """A proxy that compresses pages marks their tags as weak."""
    tag = client.get("/page.js").headers["etag"]
    again = client.get("/page.js", headers={"if-none-match": form.format(tag)})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == tag
    other = client.get("/page.css", headers={"if-none-match": form.format(tag)})
    assert other.status_code == 200
    assert other.content


def test_the_page_of_the_api_lists_every_operation(make_client):
    client = make_client(documents=FakeDocumentEncoder(), model_name="fake")
    page = client.get("/docs").text
    document = client.get("/openapi.json").json()
    shown = re.findall(r"<h2><code>([A-Z]+) ([^<]+)</code></h2>", page)
    assert shown == [
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    ]
    for schema in ("SearchRequest", "EmbeddingsRequest"):
        for name in document["components"]["schemas"][schema]["properties"]:
            assert f"<td><code>{name}</code></td>" in page


def test_the_commands_of_the_page_work(make_client):
    key = "a-key-of-enough-characters"
    client = make_client(documents=FakeDocumentEncoder(), model_name="fake", api_keys=[key])
    page = client.get("/docs").text
    statuses = {}
    for command in re.findall(r"<pre>(.*?)</pre>", page):
        words = shlex.split(html.unescape(command).replace("KEY", key).replace("{model}", "fake"))
        url = urlsplit(next(word for word in words if word.startswith("http://")).replace("=ID", "=d2"))
        after = dict(itertools.pairwise(words))
        headers = dict(words[at + 1].split(": ") for at, word in enumerate(words) if word == "-H")
        answer = client(
            after.get("-X", "GET"), f"{url.path}?{url.query}", headers=headers, content=after.get("-d")
        )
        statuses[url.path] = answer.status_code
    assert set(statuses) > {"/search", "/document", "/v1/embeddings", "/v1/models/fake", "/info"}
    assert set(statuses.values()) == {200}


def test_text_of_the_document_is_never_markup():
    operation = {
        "summary": HOSTILE,
        "parameters": [{"name": HOSTILE, "in": "path", "schema": {"type": "string"}, "description": HOSTILE}],
        "responses": {"200": {"description": HOSTILE}},
    }
    page = docs_page({"info": {"title": HOSTILE}, "paths": {f"/{HOSTILE}": {"get": operation}}})
    assert "<script" not in page
    assert "<p>&lt;script&gt;alert(1)&lt;/script&gt; &amp; <code>code</code></p>" in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [("`a` and `b`", "<code>a</code> and <code>b</code>"), ("one ` alone", "one ` alone"), ("", "")],
)
def test_text_between_backticks_is_code(text, shown):
    operation = {"summary": text, "responses": {}}
    page = docs_page({"info": {"title": "T"}, "paths": {"/": {"get": operation}}})
    assert f"<p>{shown}</p>" in page
