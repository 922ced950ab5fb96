"""Models the files of a SQLite database in WAL mode that a disk may hold after a power cut."""

from __future__ import annotations

from pathlib import Path

#: Bytes that a disk writes whole.
SECTOR = 512
#: Bytes of the header of the log.
HEADER = 32


class Disk:
    """The files of a database: as they were last synced, and as they are when the power is cut.

    Every sector of the log is the synced one or the later one, and a part of what was added is missing. Two
    things SQLite syncs by itself: the header of a log that it begins to write from its start again, and the
    log before it copies that to the database.
    """

    def __init__(self, path):
        self.path = path
        self.synced = self._log()

    def _log(self):
        log = self.path.with_name(f"{self.path.name}-wal")
        return log.read_bytes() if log.exists() else b""

    def cut(self, rng, folder):
        """Write the remaining bytes to a folder; returns the path of the database."""
        now = self._log()
        log = bytearray(now[: rng.choice([len(now), rng.randint(len(self.synced), len(now))])])
        share = rng.choice([0, rng.random(), 1])
        for start in range(0, len(log), SECTOR):
            if rng.random() < share:
                old = self.synced[start : start + SECTOR]
                log[start : start + SECTOR] = old.ljust(len(log[start : start + SECTOR]), b"\0")
        log[:HEADER] = now[:HEADER]
        folder.mkdir()
        left = Path(folder, self.path.name)
        left.write_bytes(self.path.read_bytes())
        left.with_name(f"{left.name}-wal").write_bytes(log)
        return left
