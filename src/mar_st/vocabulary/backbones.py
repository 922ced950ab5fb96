"""Backbones of a recipe whose vocabulary is cut before they are trained, once per run or store of stages."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from mar_st.data import Texts, locate, source_digest, vocabulary_cut
from mar_st.errors import MarError
from mar_st.model.digest import model_digest
from mar_st.planning.backbones import source_shape
from mar_st.vocabulary.errors import VocabularyError
from mar_st.vocabulary.folders import trim
from mar_st.vocabulary.texts import file_texts, source_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from mar_st.data import Source
    from mar_st.recipes.schema import Backbone, Recipe, Side
    from mar_st.runs.train import Processes

#: Incremented when a change of the code makes the same settings keep other pieces.
FORMAT = 1


def check_cut(recipe: Recipe, side: Side) -> None:
    """Check that the vocabulary of a backbone can be cut as its recipe asks, before anything is loaded.

    Raises:
        VocabularyError: A name in `texts` is neither a data entry nor a file, or no piece would be removed.
    """
    backbone: Backbone = getattr(recipe, side)
    cut = backbone.vocabulary
    if cut is None or backbone.source is None:
        return
    entries = [entry.name for entry in recipe.data]
    for name in cut.texts:
        if name not in entries:
            try:
                locate(name)
            except MarError as error:
                raise VocabularyError(
                    f"{side}.vocabulary.texts names {name!r}, which is not a data entry "
                    f"({', '.join(entries)}) and not a file."
                ) from error
    try:
        size = int(source_shape(backbone.source, backbone.revision).config["vocab_size"])
    except (MarError, KeyError):
        return
    if cut.keep >= size:
        raise VocabularyError(
            f"{side}.vocabulary.keep is {cut.keep}, but {backbone.source} has {size} pieces; give a smaller "
            "number, or leave 'vocabulary' out."
        )


def cut_backbones(
    recipe: Recipe,
    sources: Sequence[Source],
    root: Path,
    processes: Processes,
    say: Callable[[str], None],
) -> dict[Side, Path]:
    """Cut the vocabularies of backbones as the recipe asks; earlier results are reused.

    Args:
        recipe: The recipe.
        sources: Its data.
        root: Folder that keeps cut backbones, by a digest of everything that determines them.
        processes: The processes of the launch: the first one cuts, the others wait.
        say: Receives one line for each vocabulary that is cut.

    Returns:
        Folders of the cut backbones by side.

    Raises:
        VocabularyError: A vocabulary cannot be cut as requested.
    """
    folders: dict[Side, Path] = {}
    known = {source.entry.name: source for source in sources}
    sides: tuple[Side, ...] = ("query", "document")
    for side in sides:
        backbone: Backbone | None = getattr(recipe, side)
        if backbone is None or backbone.vocabulary is None or backbone.source is None:
            continue
        cut = backbone.vocabulary
        digests = {name: source_digest(known[name]) for name in cut.texts if name in known}
        identity = {
            "format": FORMAT,
            "source": model_digest(backbone.source, backbone.revision),
            "prompts": sorted(recipe.prompts.values()),
            **vocabulary_cut(cut, digests),
        }
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        folder = root / name
        with processes.locked(root / f"{name}.lock"):
            if processes.main and not folder.is_dir():
                texts = [source_texts(known[n]) if n in known else file_texts(n) for n in cut.texts]
                (done,) = trim(
                    backbone.source,
                    folder,
                    keep=cut.keep,
                    texts=Texts.joined(texts),
                    revision=backbone.revision,
                    prompts=list(recipe.prompts.values()),
                )
                say(f"{side} vocabulary: {done.line()}")
        folders[side] = folder
    return folders
