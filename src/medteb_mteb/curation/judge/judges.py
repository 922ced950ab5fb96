"""The judges of a build, from a YAML file: LLMs, or cross-encoders with thresholds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Discriminator, Field, Tag, model_validator

from mar_st.errors import MarError
from mar_st.options import Settings
from medteb_mteb.curation.judge.prompt import prompt_version
from medteb_mteb.curation.labels.grades import GRADES, value
from medteb_mteb.curation.llm.journal import settings_digest
from medteb_mteb.curation.llm.settings import LLM
from medteb_mteb.curation.step import Model, Runtime

if TYPE_CHECKING:
    from mar_st.graded.grader import Grader


class Judge(LLM):
    """Configuration of one judge; its judgements carry its name.

    Attributes:
        passages: Maximum number of passages of a prompt.
        prompt_tokens: Maximum number of estimated tokens of a prompt, unless a single passage has more.
        max_failed: Maximum share of pairs without a grade, not counting those that a content filter
            refuses; above it, judging stops.
    """

    passages: int = Field(default=10, ge=1, le=200)
    prompt_tokens: int = Field(default=16_000, ge=500)
    max_failed: Annotated[float, Runtime()] = Field(default=0.1, ge=0, le=1)

    def description(self) -> dict[str, Any]:
        """Return everything a grade depends on besides its texts."""
        return self.settings(prompt_version())


class LearnedJudge(Settings):
    """Configuration of a judge that is a cross-encoder with thresholds, and needs no LLM.

    Attributes:
        name: Name under which its grades are stored.
        cross_encoder: Folder that `mar cross-encoder` wrote, trained on the labels 0 for D to 4 for S.
        batch_size: Pairs per forward pass.
    """

    name: str = Field(min_length=1, max_length=100)
    cross_encoder: Annotated[str, Model()] = Field(min_length=1)
    batch_size: Annotated[int, Runtime()] = Field(default=32, ge=1)

    def description(self) -> dict[str, Any]:
        """Return everything a grade depends on besides its texts: digests of the folder's files."""
        return {"cross_encoder": self.grader().identity()}

    def key(self) -> str:
        """Return an empty key, since nothing is sent."""
        return ""

    def grader(self) -> Grader:
        """Return the cross-encoder, without its weights.

        Raises:
            MarError: There is no grader, or its labels are not the grades of the scale.
        """
        from mar_st.graded.grader import Grader  # lazy: torch

        grader = Grader(self.cross_encoder, batch_size=self.batch_size)
        best, labels = value(GRADES[0]), grader.thresholds.labels
        if not 0 <= min(labels) <= max(labels) <= best:
            raise MarError(
                f"Judge {self.name}: expected labels from 0 for D to {best} for S, but {self.cross_encoder} "
                f"gives {min(labels)} to {max(labels)}. Train it on such labels."
            )
        return grader


def _kind(entry: Any) -> str:
    learned = "cross_encoder" in entry if isinstance(entry, dict) else isinstance(entry, LearnedJudge)
    return "cross-encoder" if learned else "LLM"


class Judges(Settings):
    """The judges of a build.

    Attributes:
        judges: The judges, each with a unique name.
        check_positives: Show each judge its positives again, with a query that none of them answers; a
            passage that is again graded as an answer raises its own grade.
        control_rate: Share of the prompts with several passages that get control passages.
    """

    judges: tuple[
        Annotated[
            Annotated[Judge, Tag("LLM")] | Annotated[LearnedJudge, Tag("cross-encoder")], Discriminator(_kind)
        ],
        ...,
    ] = Field(min_length=1)
    check_positives: bool = True
    control_rate: float = Field(default=1.0, ge=0, le=1)

    @model_validator(mode="before")
    @classmethod
    def _of_list(cls, value: Any) -> Any:
        """Take a list of judges, too."""
        return {"judges": value} if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _told_apart(self) -> Self:
        names = [judge.name for judge in self.judges]
        if len(set(names)) < len(names):
            raise ValueError(f"each judge needs its own name; got {', '.join(names)}")
        seen: dict[str, str] = {}
        for judge in self.judges:
            if isinstance(judge, LearnedJudge):
                same = judge.cross_encoder
            else:
                same = settings_digest(judge.description()).hex()
            if same in seen:
                raise ValueError(
                    f"judges {seen[same]!r} and {judge.name!r} are the same model with the same settings; if "
                    "there are two models behind the name, give one of them a variant"
                )
            seen[same] = judge.name
        return self
