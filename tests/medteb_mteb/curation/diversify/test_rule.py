"""The rule of the diversity filter: settings that cannot work, and the threshold as it is compared."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from medteb_mteb.curation.diversify.rule import THRESHOLDS, SelectionRule
from medteb_mteb.curation.files.records import BuildError


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"threshold": 1.0}, "must be 0.05 or more and below 1"),
        ({"threshold": 0.0}, "must be 0.05 or more"),
        ({"threshold": -0.85}, "must be 0.05 or more"),
        ({"threshold": math.nan}, "The threshold is nan"),
        ({"threshold": math.inf}, "The threshold is inf"),
        ({"k": 2, "tolerated": 2}, "Make k larger"),
        ({"tolerated": 5}, "Of k = 5 neighbours"),
        ({"tolerated": -1}, "tolerated is -1"),
        ({"seed_size": -1}, "negative"),
    ],
)
def test_settings_by_which_nothing_or_everything_is_dropped_are_refused(settings, message):
    with pytest.raises(BuildError, match=message):
        SelectionRule(**{"threshold": 0.8, **settings})


def test_the_smallest_settings_are_allowed():
    rule = SelectionRule(0.05, k=1, tolerated=0, seed_size=0)
    assert (rule.k, rule.tolerated, rule.seed_size) == (1, 0, 0)


def test_the_published_settings_are_the_defaults():
    """MAR, Table 10."""
    assert THRESHOLDS == {"queries": 0.85, "documents": 0.78}
    rule = SelectionRule(THRESHOLDS["queries"])
    assert rule.to_json() == {"threshold": 0.85, "k": 5, "tolerated": 1, "seed_size": 5000}


@pytest.mark.parametrize("threshold", THRESHOLDS.values())
def test_a_similarity_that_is_the_threshold_in_float32_is_not_above_it(threshold):
    limit = SelectionRule(threshold).limit
    assert limit.dtype == np.float32
    assert not np.float32(threshold) > limit
    assert np.nextafter(np.float32(threshold), np.float32(1)) > limit


def test_the_manifest_holds_the_threshold_as_it_was_given():
    rule = SelectionRule(0.85, k=7, tolerated=2, seed_size=9)
    assert SelectionRule(**json.loads(json.dumps(rule.to_json()))) == rule
