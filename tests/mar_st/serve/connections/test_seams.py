from __future__ import annotations

import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mar_st.serve.connections import seams
from mar_st.serve.connections.protocol import GuardedProtocol
from mar_st.serve.connections.seams import METHODS, UvicornError, check_uvicorn
from mar_st.serve.launch import launch
from mar_st.serve.settings import ServeSettings
from mar_st.serve.supervise import Workers


def test_the_installed_uvicorn_has_every_piece() -> None:
    check_uvicorn()


@pytest.mark.parametrize(("ours", "name"), zip((GuardedProtocol, Workers), METHODS, strict=True))
def test_every_overridden_method_is_checked(ours: type, name: str) -> None:
    theirs = next(base for base in ours.__mro__[1:] if base.__module__.startswith("uvicorn"))
    assert name.endswith(theirs.__name__)
    overridden = {one for one in vars(ours) if callable(getattr(theirs, one, None)) and one in dir(theirs)}
    assert overridden - {"__init__"} <= set(METHODS[name])


def test_a_changed_method_stops_the_server_before_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", lambda self, cycle: None)
    with pytest.raises(UvicornError, match=r"has another .*_start_asgi_task, or none; .* pip install"):
        launch(lambda _: None, ServeSettings(port=0))


def test_a_missing_attribute_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "ATTRIBUTES", ("no_such_attribute",))
    with pytest.raises(UvicornError, match=r"HttpToolsProtocol\(\)\.no_such_attribute"):
        check_uvicorn()
