from __future__ import annotations

import ast
import inspect
from pydoc import locate

import pytest
from uvicorn import Server
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from mar_st.serve import supervise
from mar_st.serve.connections import protocol, seams, upgrades
from mar_st.serve.connections.protocol import GuardedProtocol
from mar_st.serve.connections.seams import ATTRIBUTES, METHODS, NAMES, UvicornError, check_uvicorn
from mar_st.serve.launch import launch
from mar_st.serve.settings import ServeSettings
from mar_st.serve.supervise import LoneServer, Workers


def used(source, *owners):
    """Attributes that a module or class takes from the objects that it names with these expressions."""
    nodes = ast.walk(ast.parse(inspect.getsource(source)))
    return {
        node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) in owners
    }


def checked(theirs):
    """Pieces of a class of uvicorn that are checked."""
    names = {name for name in (*METHODS, *ATTRIBUTES) if locate(name) is theirs}
    return {piece for name in names for piece in (*METHODS.get(name, ()), *ATTRIBUTES.get(name, ()))}


def test_the_installed_uvicorn_has_every_piece() -> None:
    check_uvicorn()


@pytest.mark.parametrize(
    ("ours", "theirs"), [(GuardedProtocol, HttpToolsProtocol), (Workers, Multiprocess), (LoneServer, Server)]
)
def test_every_piece_that_a_subclass_overrides_or_reads_is_checked(ours: type, theirs: type) -> None:
    overridden = {name for name in vars(ours) if name in dir(theirs) and not name.startswith("__")}
    own = {*vars(ours), *ours.__init__.__code__.co_names} - set(dir(theirs)) - checked(theirs)
    assert overridden | (used(ours, "self") - own) <= checked(theirs)


@pytest.mark.parametrize(
    ("theirs", "module", "names"),
    [
        (HttpToolsProtocol, upgrades, ["connection"]),
        (RequestResponseCycle, protocol, ["self.cycle", "self._running"]),
        (FlowControl, protocol, ["self.flow"]),
        (Process, supervise, ["process"]),
    ],
)
def test_every_piece_that_is_read_from_an_instance_is_checked(theirs, module, names) -> None:
    pieces = used(module, *names)
    assert pieces
    assert pieces <= checked(theirs)


def test_a_changed_method_stops_the_server_before_it_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HttpToolsProtocol, "_start_asgi_task", lambda self, cycle: None)
    with pytest.raises(UvicornError, match=r"has another .*_start_asgi_task, or none; .* pip install"):
        launch(lambda _: None, ServeSettings(port=0))


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_missing_attribute_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "ATTRIBUTES", {name: ("no_such_attribute",)})
    with pytest.raises(UvicornError, match=rf"{name}\(\)\.no_such_attribute"):
        check_uvicorn()


@pytest.mark.parametrize("name", [*METHODS, *ATTRIBUTES, *NAMES])
def test_a_missing_class_or_constant_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "locate", lambda path: None if path == name else locate(path))
    with pytest.raises(UvicornError, match=rf"has another {name}.*, or none"):
        check_uvicorn()
