"""uvicorn's configuration with limits on connections, and the log of the server."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from uvicorn import Config

from mar_st.serve.connections.guard import Guard
from mar_st.serve.connections.protocol import GuardedProtocol
from mar_st.serve.postmortem import LOG_FORMAT

if TYPE_CHECKING:
    from mar_st.serve.connections.guard import ConnectionLimits

#: Log levels by logger. uvicorn's INFO has one line per invalid request, which would let anyone fill the log.
_LEVELS = {"mar_st": logging.INFO, "uvicorn.error": logging.WARNING}


class ServeConfig(Config):
    """uvicorn's configuration with our limits; one per process, pickled to workers.

    Args:
        limits: Limits on connections.
        **options: Options of uvicorn.
    """

    def __init__(self, limits: ConnectionLimits, **options: Any) -> None:
        super().__init__(http=GuardedProtocol, ws="none", **options)
        self.guard = Guard(limits)

    def configure_logging(self) -> None:
        """Log to the standard error, with time and process.

        uvicorn would use `logging.config`, which first closes every handler of the process, with the streams
        that other code's handlers write to.
        """
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter(LOG_FORMAT))
        for name, level in _LEVELS.items():
            logger = logging.getLogger(name)
            logger.handlers, logger.propagate = [handler], False
            logger.setLevel(level)

    def load(self) -> None:
        """Load the application; its metrics count closed connections, and its engine tells of overload."""
        super().load()
        state = self.loaded_app.state
        self.guard.metrics, self.guard.generations = state.metrics, state.generations
