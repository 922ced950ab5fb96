from __future__ import annotations

import numpy as np
import pytest

from mar_st.errors import MarError
from mar_st.evaluation.tasks import Task, load_task, score
from mar_st.recipes.schema import Evaluation
from mar_st.stages.fit import DevEvaluator


@pytest.mark.parametrize("metric", ["ndcg@10", "map"])
def test_the_score_is_that_of_the_task_and_training_mode_is_kept(mar, make_folder, metric):
    path = str(make_folder("Retrieval"))
    expected = np.mean(score(mar, load_task(Task(name="t", path=path, metric=metric))))
    reported = DevEvaluator(Evaluation(path=path, metric=metric))(mar.train())
    assert reported == {f"dev_{metric}": pytest.approx(expected, abs=1e-6)}
    assert mar.training


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(MarError, match="nothing-here"):
        DevEvaluator(Evaluation(path=str(tmp_path / "nothing-here")))
