"""`mar serve` with a fake encoder; arguments: INDEX SETTINGS SECONDS PER_TEXT."""

from __future__ import annotations

import functools
import json
import sys
from typing import TYPE_CHECKING, Any

from mar_st.serve.launch import join_fleet, launch
from mar_st.serve.settings import ServeSettings
from tests.mar_st.serve.fakes import FakeDocumentEncoder, FakeEncoder

if TYPE_CHECKING:
    from pathlib import Path


def make(index: str, settings: ServeSettings, seconds: float, per_text: float, folder: Path) -> Any:
    from mar_st.serve.app import create_app

    documents = FakeDocumentEncoder() if settings.document_encoder is not None else None
    return create_app(
        index,
        settings,
        encoder=FakeEncoder(seconds, per_text),
        documents=documents,
        fleet=join_fleet(folder, settings),
    )


def main() -> None:
    index, given, seconds, per_text = sys.argv[1:]
    settings = ServeSettings(**{"port": 0, "model_name": "fake", **json.loads(given)})
    make_app = functools.partial(make, index, settings, float(seconds), float(per_text))
    launch(
        make_app,
        settings,
        folders=[index],
        say=lambda line: print(line, flush=True),  # noqa: T201
    )


if __name__ == "__main__":
    # By its own name, so that workers find what they are to make.
    from tests.mar_st.serve.fake_server import main as named

    named()
