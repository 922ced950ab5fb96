"""Opening the cross-encoder of a learned judge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mar_st.errors import MarError
from mar_st.files.reading import JsonError
from mar_st.graded import Grader
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.labels.grades import GRADES, value

if TYPE_CHECKING:
    from medteb_mteb.curation.judge.config import LearnedJudge

__all__ = ["open_grader"]


def open_grader(judge: LearnedJudge) -> Grader:
    """Return the cross-encoder of a judge, without its weights.

    Raises:
        BuildError: There is no grader, or its labels are not the grades of the scale.
    """
    try:
        grader = Grader(judge.cross_encoder, batch_size=judge.batch_size)
    except MarError as error:
        raise BuildError(f"Judge {judge.name}: {error}") from error
    except JsonError as error:
        raise BuildError(
            f"Judge {judge.name}: the thresholds in {judge.cross_encoder} are not JSON ({error}). Train the "
            "cross-encoder again."
        ) from error
    highest, labels = value(GRADES[0]), grader.thresholds.labels
    if not 0 <= min(labels) <= max(labels) <= highest:
        raise BuildError(
            f"Judge {judge.name}: {judge.cross_encoder} gives labels from {min(labels)} up to {max(labels)}; "
            f"the scale has 0 for D to {highest} for S. Train it on such labels."
        )
    return grader
