"""Restore damaged folders to their original content from their sources; nothing else is changed."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from mar_st.encode import EncodeSettings, VectorFolder, encode_corpus
from mar_st.encode import folder as vector_folder
from mar_st.encode.encoding import ENCODE_FILE
from mar_st.errors import MarError
from mar_st.files import check_file, move_file, read_json, refuse_links
from mar_st.index.build import manifest_digest, write_documents
from mar_st.index.corpus import encoded_corpus
from mar_st.index.documents import Documents
from mar_st.index.lexical import build
from mar_st.index.manifest import SEGMENTS, read_manifest, writing
from mar_st.index.registry import kind_of
from mar_st.index.source import FolderSource
from mar_st.teachers.journal import Journal, is_journal, record_type, width

if TYPE_CHECKING:
    from collections.abc import Callable

    from mar_st.integrity.verify import Verified


class RepairError(MarError):
    """A folder that cannot be repaired from this source; the message says why."""


def repair(
    verified: Verified, source: str | Path | None = None, *, say: Callable[[str], None] = lambda _: None
) -> None:
    """Repair the damage that `verify` found, if the content can be computed again.

    Vectors: damaged shards are encoded again from the corpus. Index: damaged files of the first segment are
    rebuilt from the vectors, and installed if they equal the original byte for byte. Teacher
    vectors: damaged shards are deleted, and computed by the next run that asks for them. Journals of
    endpoints: a torn last record is cut off.

    Args:
        verified: The result of `verify`.
        source: For vectors the corpus, by default the one that the folder names; for an index the vectors.
        say: Receives a line for each step.

    Raises:
        RepairError: The damage cannot be repaired, or the folder was made from another source.
        MarError: The source cannot be read.
    """
    root = Path(verified.folder)
    refuse_links(root, RepairError)
    if verified.kind == "vectors":
        _vectors(root, source, say)
    elif verified.kind == "index":
        _index(root, source, say)
    elif verified.kind == "teacher vectors":
        for place in sorted({Path(problem.file).parent for problem in verified.problems}):
            if is_journal(place):
                _journal(place, say)
            else:
                shutil.rmtree(place)
                say(f"deleted {place}; its vectors are computed again when they are needed")
    elif verified.kind == "journal":
        _journal(root, say)
    else:
        raise RepairError(
            f"{root}: {verified.kind} cannot be rebuilt from another folder. {verified.problems[0].do}"
        )


def _journal(folder: Path, say: Callable[[str], None]) -> None:
    """Cut off a torn last record; all others stay, also those that were changed."""
    journal = Journal(folder, {})
    with journal.lock:
        size = journal.path.stat().st_size
        torn = size % record_type(width(folder)).itemsize
        if torn:
            os.truncate(journal.path, size - torn)
            say(f"cut {torn} bytes of a torn record off {journal.path}")


def _vectors(root: Path, corpus: str | Path | None, say: Callable[[str], None]) -> None:
    try:
        begun = read_json(root / ENCODE_FILE)
        settings = EncodeSettings.of_json(begun["settings"])
        model = str(begun["model"]["name"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RepairError(
            f"{root} does not say what it was encoded with (no readable {ENCODE_FILE}). Copy the damaged "
            "files again, or encode into another folder."
        ) from error
    if corpus is None:
        try:
            corpus = vector_folder.read_manifest(root)["corpus"]["path"]
        except (MarError, KeyError, TypeError):
            corpus = None
    if corpus is None:
        raise RepairError(f"{root} does not say which corpus was encoded. Name it: --source CORPUS.")
    encode_corpus(model, corpus, root, settings, show_progress=False, say=say)


def _index(root: Path, vectors: str | Path | None, say: Callable[[str], None]) -> None:
    if vectors is None:
        raise RepairError(f"An index is rebuilt from its vectors. Name them: --source VECTORS ({root}).")
    with writing(root):
        manifest, folder = read_manifest(root), VectorFolder.open(vectors)
        folder.verify()
        if manifest["vectors"].get("digest") != manifest_digest(folder):
            raise RepairError(f"{root} was built of other vectors than {vectors}.")
        entry = manifest["segments"][0]
        corpus = encoded_corpus(folder) if manifest["texts"] else None
        if entry["name"] != "000001" or (manifest["texts"] and corpus is None):
            reason = "was compacted" if entry["name"] != "000001" else "needs the corpus that was encoded"
            raise RepairError(
                f"{root} {reason}, so its files cannot be rebuilt from the vectors. Build the index again."
            )
        place = root / SEGMENTS / entry["name"]
        with tempfile.TemporaryDirectory(dir=root, prefix="repair-") as temporary:
            part = Path(temporary) / entry["name"]
            part.mkdir()
            write_documents(part, folder, corpus, progress=False)
            kind_of(entry["kind"]).construct(part, FolderSource(folder), entry["params"], progress=False)
            if manifest["bm25"] is not None:
                build(part, Documents(part), manifest["bm25"]["tokens"], progress=False)
            for name, listed in entry["files"].items():
                path = place / name
                if path.is_file() and check_file(path, listed) is None:
                    continue
                if not (part / name).is_file() or check_file(part / name, listed) is not None:
                    say(f"the rebuilt {path} differs from the original; build the index again")
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                move_file(part / name, path)
                say(f"rebuilt {path}")
