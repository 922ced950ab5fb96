"""A small loop: folders of months, and slices made of rows."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

from tests.conftest import write_jsonl, write_judged
from tests.medteb_mteb.curation.diseases import DISEASES

from medteb_mteb.curation.edition.append import AppendSettings, append

if TYPE_CHECKING:
    from pathlib import Path

ASKED = ("不能吃什么", "怎么治疗", "会传染吗")
ANSWERS = ("患者不能吃辛辣油腻的东西。", "的治疗以休息和按时用药为主。", "一般不会传染给家人。")


def write_rows(path: Path, texts: dict[str, str]) -> Path:
    return write_jsonl(path, [{"_id": key, "text": text} for key, text in texts.items()])


def texts_of(diseases, ends, letter):
    return {f"{letter}{d}{i}": d + end for d in diseases for i, end in enumerate(ends)}


def write_month(new: Path, month: str, diseases) -> None:
    write_rows(new / month / "queries.jsonl", texts_of(diseases, ASKED, "q"))
    write_rows(new / month / "documents.jsonl", texts_of(diseases, ANSWERS, "d"))


def add_slice(root: Path, month: str, diseases=DISEASES) -> None:
    """Append a slice in which each question has one answer."""
    data = root / f"data-{month}"
    queries = texts_of(diseases, ASKED, "q")
    write_rows(data / "queries.jsonl", {f"{month}-{key}": text for key, text in queries.items()})
    write_rows(data / "corpus.jsonl", texts_of(DISEASES, ANSWERS, "d"))
    write_judged(data, [(f"{month}-{key}", f"d{key[1:]}", 1) for key in queries])
    append(AppendSettings(live=root / "live", data=data, slice=month, licence="mit"))


class Handler(BaseHTTPRequestHandler):
    """Writes no log."""

    def log_message(self, *_):
        pass


@contextmanager
def serving(handler):
    """Serve requests by a class of handlers, at the address that is provided."""
    httpd = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=httpd.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{httpd.server_port}"
    httpd.shutdown()
    httpd.server_close()
