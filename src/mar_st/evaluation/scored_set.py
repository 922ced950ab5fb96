"""Settings of a set that models are scored on."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from mar_st.errors import MarError

TaskType = Literal["retrieval", "rerank", "sts"]

#: Pattern of the names of tasks, rows and studies.
NAME_PATTERN = r"^[a-z0-9][a-z0-9.-]*$"


class TaskError(MarError):
    """A set that a model cannot be scored on; the message says what to do."""


class Task(BaseModel):
    """A set that every model is scored on: a folder in the Hub layout, with a score per query or pair."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=NAME_PATTERN)
    path: str = Field(description="folder, 'package:NAME/FOLDER' or the name of a packaged task")
    type: Literal["auto", "retrieval", "rerank", "sts"] = "auto"
    metric: str | None = Field(
        default=None,
        description="ndcg@K, recall@K, p@K, map, mrr; pearson, spearman. "
        "Default: ndcg@10, map (rerank), pearson",
    )
    split: str = "test"
    prompt: str | None = Field(
        default=None, description="name of the prompt put before queries; default by type, as mteb chooses it"
    )
