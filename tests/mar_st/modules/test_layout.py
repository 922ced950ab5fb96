"""Tests that module paths of a saved model cannot leave its folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from mar_st import MAR
from mar_st.errors import MarError
from mar_st.model.describe import describe
from mar_st.model.digest import space_of
from mar_st.modules.layout import read_router, routers, saved_chain
from mar_st.online.encoders import load_query_encoder

if TYPE_CHECKING:
    from pathlib import Path

OUT = "x/../../../ESCAPED"


@pytest.fixture
def saved(mar: MAR, tmp_path: Path) -> Path:
    mar.save_pretrained(str(tmp_path / "a" / "b" / "mar"), create_model_card=False)
    victim = tmp_path / "a" / "ESCAPED"
    victim.mkdir()
    (victim / "config.json").write_text("{}")
    (tmp_path / "a" / "b" / "mar" / "x").mkdir()
    return tmp_path / "a" / "b" / "mar"


def rewrite(path: Path, change: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def all_uses(folder: Path) -> list[Any]:
    return [
        lambda: MAR.from_pretrained(folder),
        lambda: load_query_encoder(folder),
        lambda: space_of(folder),
        lambda: saved_chain(folder, "query"),
        lambda: describe(folder),
    ]


def test_refuses_a_module_path_outside_the_folder(saved: Path) -> None:
    rewrite(saved / "modules.json", lambda content: content[-1].update(path=OUT))
    for use in (*all_uses(saved), lambda: routers(saved)):
        with pytest.raises(MarError, match="ESCAPED"):
            use()


def test_refuses_and_does_not_delete_a_route_part_outside_the_folder(saved: Path) -> None:
    kind = read_router(saved)["types"][read_router(saved)["structure"]["query"][0]]

    def change(content: dict[str, Any]) -> None:
        content["structure"]["query-extra"] = [OUT]
        content["types"][OUT] = kind

    rewrite(saved / "router_config.json", change)
    for use in all_uses(saved):
        with pytest.raises(MarError, match="ESCAPED"):
            use()
    assert (saved.parents[1] / "ESCAPED" / "config.json").exists()


def test_refuses_a_path_outside_the_folder_in_a_further_route(saved: Path) -> None:
    further = {"types": {OUT: "mar_st.lookup.module.LookupEncoder"}, "structure": {"query-extra": [OUT]}}
    rewrite(saved / "router_config.json", lambda content: content.update(further=further))
    with pytest.raises(MarError, match="ESCAPED"):
        MAR.from_pretrained(saved, query="query-extra")
    assert (saved.parents[1] / "ESCAPED" / "config.json").exists()


@pytest.mark.parametrize("name", ["modules.json", "router_config.json"])
@pytest.mark.parametrize("content", ["", "{", "[7]", "[{}]"])
def test_a_damaged_listing_is_one_error(saved: Path, name: str, content: str) -> None:
    (saved / name).write_text(content)
    with pytest.raises(MarError):
        saved_chain(saved, "query")
