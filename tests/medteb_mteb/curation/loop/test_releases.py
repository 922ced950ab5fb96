"""Releases: the current one, the one before it, and the server that opens them."""

from __future__ import annotations

import pytest
from tests.medteb_mteb.curation.loop.conftest import Handler, serving

from mar_st.errors import MarError
from medteb_mteb.curation.loop.release import KEY_VARIABLE, RollbackSettings, earlier, rollback, served

KEY = "a-key-of-the-server"


@pytest.fixture
def releases(tmp_path):
    for name in ("2026-10-1", "2026-10-2", "2026-11-1"):
        (tmp_path / name / "model").mkdir(parents=True)
    (tmp_path / "current").symlink_to("2026-11-1")
    return tmp_path


@pytest.fixture
def server():
    """A server that reloads for those who have its key: its address, and the paths that were asked for."""

    class Reloader(Handler):
        def do_POST(self):  # noqa: N802 -- name of the base class
            allowed = self.headers["Authorization"] == f"Bearer {KEY}"
            asked.append((self.path, allowed))
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(b'{"documents": 3}' if allowed else b"{}")

    asked = []
    with serving(Reloader) as address:
        yield address, asked


def test_rollback_goes_back_release_by_release_and_reloads(releases, server, monkeypatch):
    address, asked = server
    monkeypatch.setenv(KEY_VARIABLE, KEY)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # not used for the loop's own server
    for name in ("2026-10-2", "2026-10-1"):
        report = rollback(RollbackSettings(releases=releases, server=address))
        assert report["current"] == served(releases) == name
        assert (releases / "current" / "model").is_dir()
    with pytest.raises(MarError, match="no release before"):
        rollback(RollbackSettings(releases=releases))
    assert asked == [("/admin/reload", True)] * 2


def test_a_server_that_refuses_or_is_not_there_is_an_error(releases, server, monkeypatch):
    address, _ = server
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    with pytest.raises(MarError, match="401"):
        rollback(RollbackSettings(releases=releases, server=address))
    with pytest.raises(MarError, match="cannot be reached"):
        rollback(RollbackSettings(releases=releases, server="http://127.0.0.1:9"))


def test_no_release_and_a_broken_link(tmp_path):
    assert (served(tmp_path), earlier(tmp_path, "2026-10")) == ("", None)
    (tmp_path / "current").symlink_to("gone")
    with pytest.raises(MarError, match="leads nowhere"):
        served(tmp_path)
