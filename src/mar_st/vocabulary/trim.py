"""A model folder with a smaller vocabulary, everything else unchanged; the cuts that a recipe asks for."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForMaskedLM, AutoTokenizer

from mar_st.data.rows import read_rows
from mar_st.data.sequences import Texts, Triples
from mar_st.data.training import Source, data_digest, vocabulary_cut
from mar_st.errors import MarError
from mar_st.files import finished_folder, listed_path, read_json, read_record, write_json
from mar_st.model.describe import count_parameters
from mar_st.model.digest import model_digest
from mar_st.model.loading import check_files
from mar_st.model.native_gte import fetch, native, native_gte_config
from mar_st.model.tokenizers import with_backend
from mar_st.modules.layout import transformer_folder
from mar_st.vocabulary.choose import choose, coverage_of, usage_of
from mar_st.vocabulary.pieces import Pieces, mapped_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from mar_st.recipes.schema import Backbone, Recipe, Side


WEIGHTS_FILE, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"

#: Files that are written anew: those with numbers of tokens, and those of tokenizers.
_REWRITTEN = (
    "config.json", "generation_config.json", WEIGHTS_INDEX, "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt",
    "chat_template.jinja", "*.model",
)  # fmt: skip

#: Other forms of the weights, which would keep the old vocabulary.
_OTHER_FORMS = ("*.safetensors", "*.bin", "*.h5", "*.msgpack", "*.ot", "*.onnx", "onnx", "openvino")

#: Never a part of a model.
_EXCLUDED = (".git", ".cache", "*.part")

_ID_KEYS = re.compile(r".*_token_(id|ids|index)$")


@dataclass(frozen=True)
class Trimmed:
    """An encoder whose vocabulary was cut.

    Attributes:
        pieces: Number of pieces before and after.
        parameters: Number of parameters before and after.
        enough: Number of pieces to keep so that no text changes.
        kept_tokens: Share of the texts' tokens that are kept.
        kept_texts: Share of the texts whose pieces are all kept.
    """

    pieces: tuple[int, int]
    parameters: tuple[int, int]
    enough: int
    kept_tokens: float
    kept_texts: float


def trim(
    source: str | Path,
    out: str | Path,
    *,
    keep: int,
    texts: Sequence[str],
    revision: str | None = None,
    prompts: Sequence[str] | None = None,
) -> Trimmed:
    """Write an encoder with a smaller vocabulary; vectors of texts whose pieces all stay do not change.

    Args:
        source: Folder or Hub name of a transformers or sentence-transformers model with one encoder.
        out: Output folder; it is moved into place when it is complete.
        keep: Maximum number of pieces that are kept, see `mar_st.vocabulary.choose`.
        texts: Texts that decide which pieces are kept.
        revision: Branch, tag or commit of a Hub name.
        prompts: Possible prefixes of a text; default the prompts that the model was saved with.

    Raises:
        MarError: The model does not exist, its vocabulary cannot be cut, `keep` is out of range, or `out`
            is not empty.
    """
    root, out = fetch(source, revision), Path(out)
    if out.is_dir() and any(out.iterdir()):
        raise MarError(f"{out} exists; give another folder.")
    if prompts is None:
        saved = read_record(root / "config_sentence_transformers.json") or {}
        prompts = [text for text in (saved.get("prompts") or {}).values() if text]
    cut = _Cut(transformer_folder(root), str(source))
    cut.choose(keep, texts, prompts)

    def left_out(folder: str, names: list[str]) -> set[str]:
        own = _REWRITTEN + _OTHER_FORMS if Path(folder) == cut.folder else ()
        return {name for name in names if any(Path(name).match(pattern) for pattern in (*_EXCLUDED, *own))}

    with finished_folder(out) as part:
        shutil.copytree(root, part, ignore=left_out, dirs_exist_ok=True)
        place = part / cut.folder.relative_to(root)
        cut.write(place)
        shares = cut.compare(place, texts, prompts)
        parameters = count_parameters(cut.folder), count_parameters(place)
    return Trimmed((len(cut.pieces), len(cut.order)), parameters, cut.enough, *shares)


class _Cut:
    """One encoder whose vocabulary is being cut.

    Args:
        folder: Its folder.
        name: Source of the model, for messages.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.files = _weight_files(folder)
        check_files(folder)
        self.content = read_json(folder / "config.json")
        native_content = self.content
        if self.content.get("model_type") == "new":
            native_content = native_gte_config(self.content)
        try:
            self.config = AutoConfig.for_model(**native_content).to_dict()
            with native(folder) as loadable:
                self.tokenizer: Any = AutoTokenizer.from_pretrained(loadable)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise MarError(f"{folder} is no transformers model with a tokenizer ({error}).") from error
        self.backend: Any = getattr(self.tokenizer, "backend_tokenizer", None)
        if self.backend is None:
            raise MarError(
                f"{type(self.tokenizer).__name__} of {name} has no fast form (tokenizer.json), so its "
                "vocabulary cannot be cut. Convert it with transformers first."
            )
        self.backend.no_truncation()
        self.backend.no_padding()
        self.names, self.padding = _vocabulary_tensors(self.config)
        self.rows = self._rows()
        self.pieces = Pieces(self.backend, f"The tokenizer of {name}")

    def _is_cut(self, name: str) -> bool:
        """Return True if a tensor of a file, whose name may have a prefix, has a row per piece."""
        parts = name.split(".")
        return any(".".join(parts[start:]) in self.names for start in range(len(parts)))

    def _rows(self) -> int:
        """Return the number of rows of the embedding, from the headers of the files."""
        lengths = set()
        for path in self.files:
            with safe_open(path, framework="pt") as file:
                lengths |= {file.get_slice(n).get_shape()[0] for n in file.keys() if self._is_cut(n)}  # noqa: SIM118
        if len(lengths) != 1:
            raise MarError(
                f"{self.folder} holds no embedding of its architecture, or embeddings of several lengths "
                f"({sorted(lengths)}); save the model again."
            )
        return int(lengths.pop())

    def choose(self, keep: int, texts: Sequence[str], prompts: Sequence[str]) -> None:
        """Choose the pieces, and number them."""
        named = {number for key in self._keys(self.config) for number in _numbers(self.config[key])}
        required = {number for number in named if 0 <= number < self.rows} | set(
            self.tokenizer.all_special_ids
        )
        if self.padding is not None:
            # Positions are counted from the number of the padding token, so it must stay the same.
            required.update(range(self.padding + 1))
        tokens = set(self.pieces.numbers)
        usage = usage_of(self.backend, self.pieces, texts, prompts)
        kept, self.enough = choose(self.pieces, usage, keep, required & tokens)
        self.cut, order = self.pieces.cut(kept)
        self.order = order + sorted(required - tokens)  # rows of the embedding that the configuration names
        self.new = mapped_rows(self.order, self.rows)

    def write(self, out: Path) -> None:
        """Write weights, configuration and tokenizer."""
        rows = torch.from_numpy(np.asarray(self.order, dtype=np.int64))
        size = 0
        for path in self.files:
            with safe_open(path, framework="pt") as file:
                tensors, metadata = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
            content = {n: t.index_select(0, rows) if self._is_cut(n) else t for n, t in tensors.items()}
            size += sum(tensor.nbytes for tensor in content.values())
            save_file(content, str(out / path.name), metadata=metadata or {"format": "pt"})
        if (self.folder / WEIGHTS_INDEX).is_file():
            listing = read_json(self.folder / WEIGHTS_INDEX)
            write_json(out / WEIGHTS_INDEX, {**listing, "metadata": {"total_size": size}})
        content = self.content | {key: self.config[key] for key in self._keys(self.config)}
        write_json(out / "config.json", self._renumbered(content) | {"vocab_size": len(self.order)})
        with_backend(self.tokenizer, self.cut).save_pretrained(out)

    def _keys(self, config: Mapping[str, Any]) -> list[str]:
        return [key for key, value in config.items() if _ID_KEYS.fullmatch(key) and value is not None]

    def _renumbered(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration with the new numbers of tokens; None for a number that the model lacks."""

        def renumbered(value: Any) -> Any:
            if isinstance(value, list):
                return [renumbered(number) for number in value]
            if not isinstance(value, int) or value < 0:
                return value
            number = int(self.new[value]) if value < self.rows else -1
            return number if number >= 0 else None

        return {**config, **{key: renumbered(config[key]) for key in self._keys(config)}}

    def compare(self, out: Path, texts: Sequence[str], prompts: Sequence[str]) -> tuple[float, float]:
        """Compare the saved tokenizer with the original on texts.

        Raises:
            MarError: It splits a text otherwise although all pieces stay.
        """
        with native(out) as loadable:
            saved: Any = AutoTokenizer.from_pretrained(loadable)
        before, after = (tokenizer("")["input_ids"] for tokenizer in (self.tokenizer, saved))
        if [int(self.new[number]) for number in before] != list(after):
            raise MarError(
                f"The cut tokenizer of {self.name} puts {after} around a text in the place of {before}; a "
                "tokenizer of this form cannot be cut."
            )
        return coverage_of(self.backend, saved.backend_tokenizer, self.new, texts, prompts)


def _numbers(value: Any) -> list[int]:
    return [value] if isinstance(value, int) else [n for n in value if isinstance(n, int)]


def _vocabulary_tensors(config: Mapping[str, Any]) -> tuple[set[str], int | None]:
    """Return the parameters whose shape follows `vocab_size`, with every head that transformers has.

    Also returns the padding token if positions are counted from its number (RoBERTa); else `None`.
    """
    names: set[str] = set()
    padding = None
    size = int(config.get("vocab_size") or 0)
    loaders: tuple[Any, ...] = (AutoModel, AutoModelForMaskedLM, AutoModelForCausalLM)
    for loader in loaders:
        shapes: list[dict[str, torch.Size]] = []
        try:
            for vocabulary in (size, size + 8):
                settings = {key: value for key, value in config.items() if key != "architectures"}
                with torch.device("meta"):
                    model: Any = loader.from_config(
                        AutoConfig.for_model(**{**settings, "vocab_size": vocabulary})
                    )
                shapes.append({name: tensor.shape for name, tensor in model.state_dict().items()})
        except ValueError:
            continue  # the architecture has no such head
        names |= {name for name, shape in shapes[0].items() if shape != shapes[1][name]}
        for name, module in model.named_modules():
            if isinstance(module, nn.Embedding) and "position" in name and module.padding_idx is not None:
                padding = module.padding_idx
    return names, padding


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS_INDEX).is_file():
        index = folder / WEIGHTS_INDEX
        return [
            listed_path(folder, name, index) for name in sorted(set(read_json(index)["weight_map"].values()))
        ]
    if (folder / "adapter_config.json").is_file() or not (folder / WEIGHTS_FILE).is_file():
        raise MarError(
            f"{folder} holds no {WEIGHTS_FILE}, or an adapter; merge that (peft: merge_and_unload) and "
            "save the whole model with transformers first."
        )
    return [folder / WEIGHTS_FILE]


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
            texts = [
                Texts.joined([Triples.of(known[name].triples).texts, known[name].texts])
                if name in known
                else file_texts(name)
                for name in cut.texts
            ]
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
