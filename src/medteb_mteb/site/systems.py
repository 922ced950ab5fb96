"""What the pages say about a system: facts of mteb's `ModelMeta`, and those that a file adds."""

from __future__ import annotations

import math
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import Field

from mar_st.errors import MarError
from mar_st.options import Settings, read_yaml, validated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from medteb_mteb.compare.read import Results
    from medteb_mteb.site.tasks import TaskView

T = TypeVar("T")

#: Vectors are float32.
BYTES_PER_NUMBER = 4


class About(Settings):
    """Facts about a system that results do not hold, or that differ from those of mteb's `ModelMeta`."""

    parameters_online: int | None = Field(None, ge=0, description="Parameters that encode a query.")
    parameters_offline: int | None = Field(None, ge=0, description="Parameters that encode documents.")
    dimensions: int | None = Field(None, ge=1, description="Dimensions of a document's vector.")
    latency_ms: float | None = Field(None, gt=0, description="Milliseconds to encode one query online.")
    family: str | None = Field(None, description="Systems of one family are joined by a line.")
    licence: str | None = Field(None, description="Licence of the model.")
    prompts: dict[str, str] | None = Field(None, description="Instructions by kind of text.")
    command: str | None = Field(None, description="Command that gives these results.")


def read_about(path: Path | None, systems: Sequence[str]) -> dict[str, About]:
    """Read facts from a YAML file: a mapping of names of systems to the fields of `About`.

    Raises:
        MarError: The file is no such mapping, or names a system without results.
    """
    content = {} if path is None else read_yaml(path)
    if not isinstance(content, dict) or not all(isinstance(one, dict) for one in content.values()):
        raise MarError(f"{path}: expected a mapping of systems to facts, e.g. `my/model: {{latency_ms: 3}}`.")
    if unknown := [str(name) for name in content if name not in systems]:
        raise MarError(f"{path}: no results of {', '.join(unknown)}; there are {', '.join(systems)}.")
    return {name: validated(About, facts, f"{path}: {name}") for name, facts in content.items()}


@dataclass(frozen=True)
class System:
    """A system and what is known about it.

    Attributes:
        number: Its place in the ranking, from 0.
        name: Its name in the results.
        revision: Revision of the model.
        meta: Fields of mteb's `ModelMeta`.
        about: Further facts, which count more.
    """

    number: int
    name: str
    revision: str
    meta: Mapping[str, Any]
    about: About

    @property
    def online(self) -> int | None:
        """Return the number of parameters that encode a query."""
        return _either(self.about.parameters_online, self._number("n_parameters"))

    @property
    def offline(self) -> int | None:
        """Return the number of parameters that encode documents."""
        return _either(self.about.parameters_offline, self._number("n_parameters"))

    @property
    def dimensions(self) -> int | None:
        """Return the dimensions of a document's vector."""
        return _either(self.about.dimensions, self._number("embed_dim"))

    @property
    def size(self) -> int | None:
        """Return the bytes that an index of float32 vectors needs per document."""
        return None if self.dimensions is None else BYTES_PER_NUMBER * self.dimensions

    @property
    def latency(self) -> float | None:
        """Return the milliseconds that encoding one query takes."""
        return self.about.latency_ms

    @property
    def licence(self) -> str | None:
        """Return the licence of the model."""
        known = self.meta.get("license")
        return _either(self.about.licence, None if known is None else str(known))

    @cached_property
    def trained(self) -> frozenset[str] | None:
        """Return the data sets that the model, or one it was made from, was trained on; None if unknown."""
        from mteb.models import ModelMeta  # lazy: mteb

        names = self.meta.get("training_datasets")
        if not isinstance(names, list | dict):
            return None
        stated: dict[str, Any] = {"training_datasets": set(map(str, names))}
        stated["adapted_from"] = self.meta.get("adapted_from")
        return frozenset(ModelMeta.model_construct(**stated).get_training_datasets() or ())

    @property
    def prompts(self) -> Mapping[str, str]:
        """Return the instructions that the model puts before texts, as far as they are known."""
        loader = self.meta.get("loader_kwargs")
        stated = loader.get("model_prompts") if isinstance(loader, dict) else None
        return self.about.prompts or (stated if isinstance(stated, dict) else {})

    @property
    def max_tokens(self) -> int | None:
        """Return the longest input in tokens."""
        return self._number("max_tokens")

    def _number(self, field: str) -> int | None:
        value = self.meta.get(field)
        return int(value) if isinstance(value, int | float) and math.isfinite(value) else None

    def command(self, tasks: Sequence[TaskView]) -> str:
        """Return the command that reproduces the scores on some tasks; folders have no places."""
        if self.about.command:
            return self.about.command
        name = self.name.partition("@")[0].removeprefix("local/")
        words = ["medteb", "run", "-m", re.sub("^run/(.*)", r"\1.trec", name)]
        for task in tasks:
            folder = task.folder if task.metadata is None else None
            words += ["-t", task.name] if folder is None else ["--data", folder.layout.path.name]
        return shlex.join([*words, "--trec"])


def _either(stated: T | None, known: T | None) -> T | None:
    return known if stated is None else stated


def systems_of(results: Results, about: Mapping[str, About]) -> list[System]:
    """Return the systems of some results, the best first."""
    entries = {entry.model: entry for entry in results.table.entries}
    return [
        System(number, name, entries[name].model_revision, entries[name].facts, about.get(name, About()))
        for number, name in enumerate(results.table.models)
    ]
