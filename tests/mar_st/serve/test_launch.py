"""Starting the server: what prevents it is one clear error, and nothing is left behind."""

from __future__ import annotations

import errno
import logging
import resource
import socket
import sys

import pytest
from uvicorn.config import STARTUP_FAILURE

from mar_st.errors import MarError
from mar_st.files.packages import PackageError
from mar_st.serve import launch as launching
from mar_st.serve.launch import SPARE_FILES, check_packages, join_fleet, launch, run, worker
from mar_st.serve.settings import ServeError, ServeSettings


@pytest.fixture
def file_limit():
    """The limits of open files, which are restored."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def launched_here(monkeypatch, file_limit):
    """Lets a test launch a server in this process: it has threads, so it forks no watcher."""
    monkeypatch.delattr("os.fork")
    return file_limit


@pytest.mark.parametrize("host", ["a..b", "x" * 64, "\udcff", "192.0.2.1"])
@pytest.mark.usefixtures("launched_here")
def test_an_address_that_cannot_be_used_is_one_clear_error(host):
    settings = ServeSettings(host=host, port=0, insecure=True)
    with pytest.raises(ServeError, match=r"Cannot listen on .*:0 \(.+\)\. Choose another --port"):
        launch(lambda _: pytest.fail("the application is not made"), settings)


@pytest.mark.usefixtures("launched_here")
def test_a_port_that_is_taken_is_one_clear_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            ServeError, match=rf"Cannot listen on 127\.0\.0\.1:{port} \(Address already in use\)"
        ):
            run("index", None, ServeSettings(port=port))


@pytest.mark.usefixtures("launched_here")
def test_an_application_that_cannot_be_made_leaves_neither_its_folder_nor_its_port():
    seen = []

    def make(folder):
        assert folder.is_dir()
        seen.append(folder)
        raise MarError("no index here")

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    with pytest.raises(MarError, match="no index here"):
        launch(make, ServeSettings(port=port), say=lambda _: pytest.fail("it does not listen"))
    assert not seen[0].exists()
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    check_packages()
    monkeypatch.setattr(launching, "REQUIRED_PACKAGES", ("fastapi", "no_such_package"))
    with pytest.raises(
        PackageError, match=r"needs the package no_such_package\. .*pip install 'medteb\[serve\]'"
    ):
        check_packages()


def test_a_worker_that_cannot_read_the_index_logs_one_line(monkeypatch, caplog, tmp_path):
    def fail(*_args, **_settings):
        raise OSError(errno.EROFS, "Read-only file system", "/nowhere/index")

    monkeypatch.setattr("mar_st.serve.app.create_app", fail)
    monkeypatch.setattr("mar_st.serve.launch.join_fleet", lambda *_: None)
    with caplog.at_level(logging.ERROR), pytest.raises(SystemExit) as stopped:
        worker("index", None, ServeSettings(workers=2), tmp_path)
    assert stopped.value.code == STARTUP_FAILURE
    (record,) = caplog.records
    assert record.getMessage() == "[Errno 30] Read-only file system: '/nowhere/index'"
    assert record.exc_info is None
    with pytest.raises(OSError, match="Read-only"):  # `mar` makes one line of it
        worker("index", None, ServeSettings(workers=1), tmp_path)


@pytest.mark.parametrize("connections", [1, 1000])
def test_a_worker_may_open_a_file_for_each_connection(file_limit, tmp_path, monkeypatch, connections):
    soft = 400
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, file_limit[1]))
    monkeypatch.setattr(sys, "setswitchinterval", lambda _: None)
    fleet = join_fleet(tmp_path, ServeSettings(max_connections=connections))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert allowed == max(soft, min(connections + SPARE_FILES, file_limit[1]))
    assert (fleet.folder, fleet.parent) == (tmp_path, None)
