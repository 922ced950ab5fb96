"""The search page and the page of the API; neither loads scripts or styles from other sites."""

from __future__ import annotations

import hashlib
import html
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response

from mar_st.serve.api.http import as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_FOLDER = Path(__file__).parent / "page"

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}

#: Content security policy: nothing from other sites, nothing inline, no framing, forms only to this site.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-cache",
}


def add_pages(app: FastAPI, document: Callable[[], dict[str, Any]]) -> None:
    """Add `/`, its scripts and style, `/openapi.json` and `/docs`.

    Args:
        app: The application.
        document: Returns the OpenAPI document.
    """
    _add_file(app, "/", _FOLDER / "index.html")
    for name in ("page.js", "texts.js", "page.css"):
        _add_file(app, f"/{name}", _FOLDER / name)

    @app.get("/openapi.json", include_in_schema=False)
    async def description() -> Response:
        return Response(
            as_json(document()), media_type="application/json", headers={"cache-control": "no-cache"}
        )

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return Response(docs_page(document()), media_type=_TYPES[".html"], headers=_HEADERS)


def _add_file(app: FastAPI, path: str, file: Path) -> None:
    content = file.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {**_HEADERS, "etag": tag}

    @app.get(path, include_in_schema=False, name=file.stem)
    async def show(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):  # a list; a proxy that compresses adds W/
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=_TYPES[file.suffix], headers=headers)


def docs_page(document: Mapping[str, Any]) -> str:
    """Return the OpenAPI document as HTML: every operation with fields, answers and a command to try."""
    operations = [
        _operation(document, path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    title = html.escape(document["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}: API</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        '<link rel="stylesheet" href="page.css"></head><body><main class="docs">'
        f'<h1>{title}: API</h1><p>Machine-readable: <a href="openapi.json">openapi.json</a>. '
        f'The search page: <a href="./">here</a>.</p>{"".join(operations)}</main></body></html>'
    )


def _operation(document: Mapping[str, Any], path: str, method: str, operation: Mapping[str, Any]) -> str:
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    fields = {
        parameter["name"]: {**parameter["schema"], "description": parameter.get("description", "")}
        for parameter in operation.get("parameters", ())
    }
    example = ""
    if body is not None:
        fields = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[-1]]["properties"]
        text = {"query": "头疼吃什么药"} if "query" in fields else {"input": "头疼吃什么药"}
        example = f" -H 'Content-Type: application/json' -d '{json.dumps(text, ensure_ascii=False)}'"
    rows = "".join(_field(name, field) for name, field in fields.items())
    table = _table(("field", "what", "default"), rows) if fields else ""
    key = " -H 'Authorization: Bearer KEY'" if operation.get("security") else ""
    query = "".join(
        f"?{parameter['name']}={parameter['name'].upper()}"
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    )
    command = f"curl{' -X POST' if method == 'post' else ''} http://HOST:PORT{path}{query}{key}{example}"
    answers = "".join(
        f"<tr><td>{status}</td><td>{_prose(answer['description'])}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return (
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2>"
        f"<p>{_prose(operation['summary'])}</p>{table}<pre>{html.escape(command)}</pre>"
        f"<details><summary>Answers</summary>{_table(('status', 'when'), answers)}</details></section>"
    )


def _table(heads: tuple[str, ...], rows: str) -> str:
    cells = "".join(f'<th scope="col">{head}</th>' for head in heads)
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"


def _field(name: str, field: Mapping[str, Any]) -> str:
    default = "" if field.get("default") is None else f"<code>{json.dumps(field['default'])}</code>"
    what = _prose(str(field.get("description", "")))
    return f"<tr><td><code>{html.escape(name)}</code></td><td>{what}</td><td>{default}</td></tr>"


def _prose(text: str) -> str:
    """Convert a description to HTML; text between backticks becomes code, as in Markdown."""
    parts = html.escape(text).split("`")
    if len(parts) % 2 == 0:  # an unmatched backtick
        return html.escape(text)
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))
