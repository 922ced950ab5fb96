"""The texts that decide which pieces of a vocabulary are kept, and the vocabularies that a recipe cuts."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from mar_st.data.rows import read_rows
from mar_st.data.sequences import Texts, Triples
from mar_st.data.training import data_digest, vocabulary_cut
from mar_st.errors import MarError
from mar_st.model.digest import model_digest
from mar_st.vocabulary.trim import trim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from mar_st.data.training import Source
    from mar_st.recipes.schema import Backbone, Recipe, Side


def file_texts(name: str) -> Texts:
    """Return all texts of a file or folder.

    Args:
        name: A text file (`.txt`, one text per line), or rows (see `mar_st.data.rows.read_rows`), such
            as training data or a folder with `corpus.jsonl` and `queries.jsonl`; all texts but ids count.

    Raises:
        MarError: The source is missing or broken, or holds no texts.
    """
    texts = Texts.of(text for row in read_rows(name) for text in _texts(row.values))
    if not len(texts):
        raise MarError(f"{name} holds no texts.")
    return texts


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value:
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            if not key.endswith("id"):
                yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def cut_backbones(
    recipe: Recipe, sources: Sequence[Source], root: Path, say: Callable[[str], None]
) -> dict[Side, Path]:
    """Cut the vocabularies of backbones as the recipe asks; earlier results are reused.

    Args:
        recipe: The recipe.
        sources: Its data.
        root: Folder that keeps cut backbones, by a digest of everything that determines them.
        say: Receives one line for each vocabulary that is cut.

    Returns:
        Folders of the cut backbones by side.

    Raises:
        MarError: A vocabulary cannot be cut as requested.
    """
    folders: dict[Side, Path] = {}
    known = {source.entry.name: source for source in sources}
    sides: tuple[Side, ...] = ("query", "document")
    for side in sides:
        backbone: Backbone | None = getattr(recipe, side)
        if backbone is None or backbone.vocabulary is None or backbone.source is None:
            continue
        cut, prompts = backbone.vocabulary, sorted(recipe.prompts.values())
        digests = {name: data_digest(known[name].entry) for name in cut.texts if name in known}
        source = model_digest(backbone.source, backbone.revision)
        identity = {"source": source, "prompts": prompts, **vocabulary_cut(cut, digests)}
        digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
        folders[side] = root / digest[:32]
        if not folders[side].is_dir():
            texts = [_source_texts(known[n]) if n in known else file_texts(n) for n in cut.texts]
            done = trim(
                backbone.source,
                folders[side],
                keep=cut.keep,
                texts=Texts.joined(texts),
                revision=backbone.revision,
                prompts=prompts,
            )
            before, after = done.pieces
            say(f"{side} vocabulary: {after:,} of {before:,} pieces, {done.kept_tokens:.3%} of the tokens")
    return folders


def _source_texts(source: Source) -> Texts:
    return Texts.joined([Triples.of(source.triples).texts, source.texts])
