"""Tests of the server's log lines, and that handlers of the application stay untouched."""

from __future__ import annotations

import io
import logging

from mar_st.serve.connections.config import ServeConfig
from mar_st.serve.connections.guard import ConnectionLimits


def test_handlers_of_the_application_stay_open():
    class Owner(logging.StreamHandler):
        def close(self):
            self.stream.close()
            super().close()

    other = Owner(io.StringIO())
    ServeConfig(ConnectionLimits(max_connections=4), app="none:none")
    other.emit(logging.makeLogRecord({"msg": "still here"}))
    assert other.stream.getvalue() == "still here\n"


def test_lines_hold_time_process_and_level(capsys):
    ServeConfig(ConnectionLimits(max_connections=4), app="none:none")
    logging.getLogger("mar_st.serve").info("a line")
    logging.getLogger("mar_st.serve").debug("not this one")
    logging.getLogger("uvicorn.error").info("nor this one")
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert error[0].endswith("INFO mar_st.serve: a line")
