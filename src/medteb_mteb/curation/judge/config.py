"""The judges of a build: LLMs with settings for judging, from a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, model_validator

from medteb_mteb.curation.judge.controls import CONTROL_TEXTS, CONTROLS, ECHOES
from medteb_mteb.curation.judge.grader import open_grader
from medteb_mteb.curation.judge.prompt import prompt_version
from medteb_mteb.curation.llm.config import LLM, load_settings
from medteb_mteb.curation.llm.database import settings_digest

__all__ = ["AnyJudge", "Judge", "Judges", "LearnedJudge", "load_judges"]


class Judge(LLM):
    """Configuration of one judge; its judgements carry its name.

    Attributes:
        passages: Maximum number of passages of a prompt.
        prompt_tokens: Maximum number of estimated tokens of a prompt, unless a single passage has more.
        max_failed: Maximum share of pairs without a grade, not counting those that a content filter
            refuses; above it, judging stops.
        keep_answers: Answers to keep in the journal, unchanged and compressed: `unread`, those with a passage
            without a grade, or `none`. Stored answers are parsed again before anything is requested again.
        tags: Ask for keys that carry a tag of their passage (`Passage-0-k7f`) instead of the published
            `Passage-0`; then mixed-up answers are recognised.
    """

    passages: int = Field(default=10, ge=1, le=200)
    prompt_tokens: int = Field(default=16_000, ge=500)
    max_failed: float = Field(default=0.1, ge=0, le=1)
    keep_answers: Literal["unread", "none"] = "unread"
    tags: bool = True

    def description(self) -> dict[str, Any]:
        """Return everything a grade depends on besides its texts."""
        return self.settings(prompt_version(tags=self.tags))


class LearnedJudge(BaseModel):
    """Configuration of a judge that is a cross-encoder with thresholds, and needs no LLM.

    Attributes:
        name: Name under which its grades are stored.
        cross_encoder: Folder that `mar cross-encoder` wrote, trained on the labels 0 for D to 4 for S.
        batch_size: Pairs per forward pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(min_length=1, max_length=100)
    cross_encoder: str = Field(min_length=1)
    batch_size: int = Field(default=32, ge=1)

    def description(self) -> dict[str, Any]:
        """Return everything a grade depends on besides its texts: digests of the folder's files."""
        return {"cross_encoder": open_grader(self).identity()}

    def key(self) -> str:
        """Return an empty key, since nothing is sent."""
        return ""


def _kind(entry: Any) -> str:
    learned = "cross_encoder" in entry if isinstance(entry, dict) else isinstance(entry, LearnedJudge)
    return "cross-encoder" if learned else "LLM"


AnyJudge: TypeAlias = Judge | LearnedJudge


class Judges(BaseModel):
    """The judges of a build.

    Attributes:
        judges: The judges, each with a unique name.
        seed: Seed of the order of passages, and of the choice and places of control passages.
        control_rate: Share of the prompts with several passages that get control passages, one negative and
            one positive. Prompts with a suspicious passage always do.
        controls: Negative control passages: texts unrelated to any query.
        echoes: Positive control passages for queries without a gold passage: texts with `{query}`, which
            cannot be unrelated to the query. If empty, prompts without a gold passage have no positive one.
        check_positives: Show each judge its positives again, with a query that none of them answers; a
            passage that is again graded as an answer raises its own grade.
        checks: Queries for this, unrelated to the documents and to `controls`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    judges: tuple[
        Annotated[
            Annotated[Judge, Tag("LLM")] | Annotated[LearnedJudge, Tag("cross-encoder")], Discriminator(_kind)
        ],
        ...,
    ] = Field(min_length=1)
    seed: int = 42
    control_rate: float = Field(default=1.0, ge=0, le=1)
    controls: tuple[Annotated[str, Field(min_length=10)], ...] = Field(default=CONTROLS, min_length=1)
    echoes: tuple[Annotated[str, Field(pattern=r"\{query\}")], ...] = ECHOES
    check_positives: bool = True
    checks: tuple[Annotated[str, Field(min_length=4)], ...] = Field(default=CONTROL_TEXTS, min_length=1)

    def checking(self) -> dict[str, Any]:
        """Return the settings of the check of positives that differ from the defaults."""
        if not self.check_positives:
            return {"check_positives": False}
        return {} if self.checks == CONTROL_TEXTS else {"checks": list(self.checks)}

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        seen: dict[str, str] = {}
        for judge in self.judges:
            if judge.name in seen.values():
                raise ValueError(f"two judges are called {judge.name!r}")
            if isinstance(judge, LearnedJudge):
                same = f"cross-encoder {Path(judge.cross_encoder).resolve()}"
            else:
                same = settings_digest(judge.description()).hex()
            if same in seen:
                raise ValueError(
                    f"judges {seen[same]!r} and {judge.name!r} are the same model with the same settings; if "
                    "there are two models behind the name, give one of them a variant"
                )
            seen[same] = judge.name
        return self


def load_judges(path: str | Path) -> Judges:
    """Return the judges of a YAML file.

    Raises:
        BuildError: The file does not exist, or its content does not fit `Judges`.
    """
    return load_settings(path, Judges, "'judges', a list")
