"""State of a build: the settings and inputs each step was made with, to detect changes."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medteb_mteb.curation.files.folder import read_json, write_json
from medteb_mteb.curation.files.read import HUB_PREFIX, MANIFEST, STEP_FILE, source_digest
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.editions import CROISSANT, PROVENANCE, sha256_of

if TYPE_CHECKING:
    from medteb_mteb.curation.pipeline.base import PipelineStep
    from medteb_mteb.curation.pipeline.settings import PipelineSettings

__all__ = ["STATE_FILE", "State", "StepRecord", "content_digest", "fingerprint"]

STATE_FILE = "build.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class StepRecord:
    """Record of one step.

    Attributes:
        step: Kind of step.
        fingerprint: Digest of everything that the step depends on.
        finished: True if the step was completed.
        digest: Digest of the output.
        result: Result of the step.
        seconds: Wall-clock time of the run that finished the step.
    """

    step: str
    fingerprint: str
    finished: bool = False
    digest: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


class State:
    """The records of a build, kept in `build.json`.

    Args:
        root: Folder of the build.
    """

    def __init__(self, root: Path) -> None:
        self.path = root / STATE_FILE
        self.records: dict[str, StepRecord] = {}
        if self.path.is_file():
            try:
                content = read_json(self.path)
                version = content["schema_version"]
                if version == SCHEMA_VERSION:
                    self.records = {name: _record(row) for name, row in content["steps"].items()}
            except OSError as error:
                raise BuildError(f"{self.path} cannot be read ({error.strerror}).") from error
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise BuildError(
                    f"{self.path} is damaged. Put it back as it was; or give another 'out', with 'journal' "
                    "and 'answers' where they are now: paid answers are in these journals."
                ) from error
            if version != SCHEMA_VERSION:
                raise BuildError(
                    f"{self.path} is of another version of medteb; give another 'out', or delete the folder."
                )

    def put(self, name: str, record: StepRecord) -> None:
        """Keep a record."""
        self.records[name] = record
        self._write()

    def forget(self, name: str) -> None:
        """Delete a record."""
        if self.records.pop(name, None) is not None:
            self._write()

    def _write(self) -> None:
        content = {
            "schema_version": SCHEMA_VERSION,
            "steps": {name: asdict(record) for name, record in self.records.items()},
        }
        write_json(self.path, content)


def _record(row: dict[str, Any]) -> StepRecord:
    """Return the record of a row of the file.

    Raises:
        TypeError: The row is not an object, a field is missing or unknown, or has another type.
    """
    record = StepRecord(**row)
    texts = (record.step, record.fingerprint, record.digest)
    usable = all(isinstance(text, str) for text in texts) and isinstance(record.result, dict)
    if not usable or not isinstance(record.finished, bool) or not isinstance(record.seconds, int | float):
        raise TypeError(f"{row!r} is not a record of a step")
    return record


def fingerprint(
    step: PipelineStep, inputs: dict[str, list[str]], models: dict[str, str], pipeline: PipelineSettings
) -> str:
    """Return the digest (64 hex digits) of everything that a step's output depends on.

    Args:
        step: The step.
        inputs: Digests of its inputs, by key.
        models: Digests of its models, by name.
        pipeline: The settings of the pipeline.
    """
    keys = {key for key, _, _ in step.inputs()}
    fields = type(step).model_fields
    own = {
        field.alias or name: value
        for name, field in fields.items()
        if (value := getattr(step, name)) is not None
        and (field.alias or name) not in keys
        and name not in step.PASSING | {"name"}
    }
    content = {"settings": own, "inputs": inputs, "models": models, "by": step.depends_on(pipeline)}
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def content_digest(path: str | Path, *, texts: bool = False) -> str:
    """Return the digest (64 hex digits) of a step's output or of a raw input.

    For a folder with a manifest it is that of the manifest, which holds the digests of the files. Files that
    record when something was made are left out.

    Args:
        path: File, folder, or `hub:ORG/NAME`.
        texts: Whether `read_texts` reads it; of a folder that no step wrote, only files that it reads count.

    Raises:
        BuildError: The source does not exist, or it cannot be read.
    """
    try:
        return _content_digest(path, texts=texts)
    except OSError as error:
        raise BuildError(f"{error.filename or path} cannot be read ({error.strerror or error}).") from error


def _content_digest(path: str | Path, *, texts: bool) -> str:
    place = Path(path)
    if str(path).startswith(HUB_PREFIX) or (texts and place.is_dir() and not (place / STEP_FILE).is_file()):
        return source_digest(path)
    if place.is_file():
        return sha256_of(place)
    if (place / MANIFEST).is_file():
        return sha256_of(place / MANIFEST)
    if not place.is_dir():
        raise BuildError(f"There is no {path}.")
    files = sorted(
        file
        for file in place.rglob("*")
        if file.is_file()
        and file.name not in (PROVENANCE, CROISSANT)
        and not any(part.startswith(".") for part in file.relative_to(place).parts)
    )
    digest = hashlib.sha256()
    for file in files:
        name = os.fsencode(file.relative_to(place).as_posix())  # may be of another encoding than UTF-8
        digest.update(b"%s %s\n" % (name, sha256_of(file).encode()))
    return digest.hexdigest()
