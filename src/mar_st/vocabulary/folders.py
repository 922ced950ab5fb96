"""A model folder with smaller vocabularies, everything else unchanged."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import AutoTokenizer

from mar_st.files import finished_folder, refresh_digests
from mar_st.model.native_gte import fetch, native
from mar_st.model.tokenizers import with_backend
from mar_st.modules.layout import routers, saved_chain
from mar_st.vocabulary.choose import Coverage, choose, fit_of, usage_of
from mar_st.vocabulary.errors import VocabularyError
from mar_st.vocabulary.pieces import Pieces, mapped_rows
from mar_st.vocabulary.weights import (
    CONFIG_FILES,
    WEIGHTS_INDEX,
    config_numbers,
    read_config,
    rows_of,
    vocabulary_tensors,
    weight_files,
    write_configs,
    write_weights,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

#: Files of tokenizers, all replaced by those of the cut one.
TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json", "merges.txt", "chat_template.jinja", "*.model",
)  # fmt: skip

#: Other forms of the weights, which would keep the old vocabulary.
OTHER_FORMS = (
    "*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.ot", "*.onnx", "onnx", "openvino",
    "pytorch_model*.json",
)  # fmt: skip

#: Never a part of a model.
EXCLUDED_PATTERNS = (".git", ".cache", "*.part")


@dataclass(frozen=True)
class Trimmed:
    """One encoder whose vocabulary was cut.

    Attributes:
        folder: Folder of the encoder, relative to the model's folder; empty if they are the same.
        pieces: Number of pieces before and after.
        parameters: Number of parameters before and after.
        enough: Number of pieces to keep so that no text changes.
        fit: How well the kept pieces cover the texts.
    """

    folder: str
    pieces: tuple[int, int]
    parameters: tuple[int, int]
    enough: int
    fit: Coverage

    def line(self) -> str:
        """Return the figures in one line."""
        return (
            f"{self.pieces[0]:,} -> {self.pieces[1]:,} pieces, {self.parameters[0]:,} -> "
            f"{self.parameters[1]:,} parameters; {self.fit.tokens:.3%} of the texts' tokens kept, "
            f"{self.fit.texts:.2%} of the texts unchanged (all with keep {self.enough:,})"
        )


def trim(
    source: str | Path,
    out: str | Path,
    *,
    keep: int,
    texts: Sequence[str],
    routes: Sequence[str] = (),
    revision: str | None = None,
    prompts: Sequence[str] | None = None,
    overwrite: bool = False,
    show_progress: bool = False,
) -> list[Trimmed]:
    """Write a model with smaller vocabularies; vectors of texts whose pieces all stay do not change.

    Args:
        source: Folder or Hub name of a transformers or sentence-transformers model, or a saved MAR.
        out: Output folder; it is moved into place when it is complete.
        keep: Maximum number of pieces of a vocabulary that are kept, see `mar_st.vocabulary.choose`.
        texts: Texts that decide which pieces are kept.
        routes: Encoders of a saved MAR; default all with more than `keep` pieces.
        revision: Branch, tag or commit of a Hub name.
        prompts: Possible prefixes of a text; default the prompts that the model was saved with.
        overwrite: Replace the model in `out`.
        show_progress: Show progress bars.

    Returns:
        The cut encoders.

    Raises:
        VocabularyError: The route does not exist, a vocabulary or model cannot be cut, `keep` is out of
            range, or `out` exists and may not be replaced.
        MarError: The model does not exist.
    """
    root, out = fetch(source, revision), Path(out)
    _check_place(out, overwrite=overwrite)
    if out.exists() and root.resolve().is_relative_to(out.resolve()):
        raise VocabularyError(f"{out} holds the model to cut; give another folder.")
    wanted = _encoders(root, routes)
    if prompts is None:
        prompts = _prompts(root)
    cuts = [_Cut(root / folder, str(source)) for folder in wanted]
    if len(cuts) > 1 and not routes:  # those that are small enough stay as they are
        larger = [cut for cut in cuts if len(cut.pieces) > keep]
        cuts = larger or cuts
    for cut in cuts:
        cut.choose(keep, texts, prompts, show_progress=show_progress)
    places = {cut.folder.resolve() for cut in cuts}
    done = []
    with finished_folder(out) as part:
        shutil.copytree(
            root,
            part,
            ignore=lambda folder, names: _left_out(Path(folder), names, places),
            dirs_exist_ok=True,
        )
        for cut in cuts:
            below = cut.folder.relative_to(root).as_posix()
            done.append(cut.write(part / below, "" if below == "." else below, texts, prompts, show_progress))
        refresh_digests(part, lambda name: any(name.startswith(cut.folder) for cut in done))
    return done


def _check_place(out: Path, *, overwrite: bool) -> None:
    """Make sure that a model may be written to a folder.

    Raises:
        VocabularyError: There is something other than an empty folder, or than a model to overwrite.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    is_model = (out / "modules.json").is_file() or (
        (out / "config.json").is_file() and any(out.glob("*.safetensors"))
    )
    if not is_model:
        raise VocabularyError(f"{out} holds no model, so it is not replaced. Give another folder.")
    if not overwrite:
        raise VocabularyError(f"{out} exists; give another folder, or --overwrite.")


class _Cut:
    """One encoder whose vocabulary is being cut."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.config = read_config(folder)
        self.files = weight_files(folder)
        self.tensors = vocabulary_tensors(self.config)
        self.rows = rows_of(self.files, self.tensors)
        with native(str(folder)) as loadable:
            try:
                self.tokenizer: Any = AutoTokenizer.from_pretrained(loadable)
            except (OSError, ValueError) as error:
                raise VocabularyError(f"{name} has no tokenizer that can be loaded ({error}).") from error
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise VocabularyError(
                f"{type(self.tokenizer).__name__} of {name} has no fast form (tokenizer.json), so its "
                "vocabulary cannot be cut. Convert it with transformers first."
            )
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.pieces = Pieces(backend, f"The tokenizer of {name}")
        if self.pieces.size > self.rows:
            raise VocabularyError(
                f"The tokenizer of {name} has {self.pieces.size} tokens but its embedding {self.rows} rows; "
                "they belong to different models."
            )

    def choose(self, keep: int, texts: Sequence[str], prompts: Sequence[str], *, show_progress: bool) -> None:
        """Choose the pieces, and number them."""
        required = {number for number in config_numbers(self.config) if number < self.rows}
        required.update(self.tokenizer.all_special_ids)
        if self.tensors.offset is not None:
            # Positions are counted from the number of the padding token, so it must stay the same.
            required.update(range(self.tensors.offset + 1))
        tokens = set(self.pieces.numbers)
        usage = usage_of(self.backend, self.pieces, texts, prompts, show_progress=show_progress)
        self.choice = choose(self.pieces, usage, keep, required & tokens)
        self.cut, order = self.pieces.cut(self.choice.kept)
        self.order = order + sorted(required - tokens)  # rows of the embedding that the configuration names

    def write(
        self, out: Path, below: str, texts: Sequence[str], prompts: Sequence[str], show_progress: bool
    ) -> Trimmed:
        """Write weights, configuration and tokenizer, and compare the tokenizers on the texts."""
        new = mapped_rows(self.order, self.rows)
        parameters = write_weights(self.files, out, self.tensors, self.order)
        write_configs(self.folder, out, self.config, new, len(self.order))
        with_backend(self.tokenizer, self.cut).save_pretrained(out)
        with native(str(out)) as loadable:
            saved: Any = AutoTokenizer.from_pretrained(loadable)
        self._check_template(saved, new)
        fit = fit_of(self.backend, new, saved.backend_tokenizer, texts, prompts, show_progress=show_progress)
        return Trimmed(below, (len(self.pieces), len(self.order)), parameters, self.choice.enough, fit)

    def _check_template(self, saved: Any, new: np.ndarray) -> None:
        before, after = (tokenizer("")["input_ids"] for tokenizer in (self.tokenizer, saved))
        if new[before].tolist() != after if before else bool(after):
            raise VocabularyError(
                f"The cut tokenizer of {self.name} puts {after} around a text in the place of "
                f"{new[before].tolist()}; a tokenizer of this form cannot be cut."
            )


def _encoders(root: Path, routes: Sequence[str]) -> list[str]:
    """Return the folders of the transformers of a model below its own."""
    if not (root / "modules.json").is_file():
        if routes:
            raise VocabularyError(f"{root} is not a saved MAR, so it has no routes; leave --route out.")
        if not (root / "config.json").is_file():
            raise VocabularyError(f"{root} holds no model (no config.json, no modules.json).")
        return ["."]
    names: list[str] = []
    for router in routers(root):
        names += json.loads((router / "router_config.json").read_text(encoding="utf-8"))["structure"]
    unknown = [route for route in routes if route not in names]
    if unknown:
        raise VocabularyError(
            f"{root} has no route {unknown[0]!r}; it has {', '.join(dict.fromkeys(names)) or 'none'}."
        )
    folders: dict[str, None] = {}
    for route in routes or list(dict.fromkeys(names)) or ["query"]:
        parts = [part for part in saved_chain(root, route) if part.type.endswith(".Transformer")]
        there = [part for part in parts if (part.path / "config.json").is_file()]
        if routes and not there:
            raise VocabularyError(f"The route {route} of {root} has no transformer with a vocabulary to cut.")
        folders |= dict.fromkeys(part.path.relative_to(root).as_posix() for part in there)
    if not folders:
        raise VocabularyError(f"{root} has no transformer with a vocabulary to cut.")
    return list(folders)


def _prompts(root: Path) -> list[str]:
    path = root / "config_sentence_transformers.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return [text for text in (content.get("prompts") or {}).values() if text]


def _left_out(folder: Path, names: list[str], encoders: set[Path]) -> set[str]:
    """Return the files not to copy: those rewritten for the cut vocabulary, and other weight formats."""
    patterns: tuple[str, ...] = EXCLUDED_PATTERNS
    if folder.resolve() in encoders:
        patterns += TOKENIZER_FILES + OTHER_FORMS + CONFIG_FILES + (WEIGHTS_INDEX,)
    return {name for name in names if any(Path(name).match(pattern) for pattern in patterns)}
