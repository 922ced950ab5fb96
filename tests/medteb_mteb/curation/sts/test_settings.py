"""Settings of synonym STS: those that cannot lead to a test are refused before anything is paid for."""

from __future__ import annotations

import json
import math

import pytest

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.sts.settings import StsSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test": 0}, "must be positive"),
        ({"test": -3}, "must be positive"),
        ({"test": math.nan}, "must be positive and finite; got nan"),
        ({"test": math.inf}, "must be positive and finite; got inf"),
        ({"probabilities": (0.5, 0.5, 0.5)}, "with a sum of 1"),
        ({"probabilities": (0.5, 0.5)}, "Three probabilities"),
        ({"probabilities": ()}, "Three probabilities"),
        ({"probabilities": (0.5, 1.0, -0.5)}, "Three probabilities"),
        ({"probabilities": (math.nan, 0.5, 0.5)}, "Three probabilities.*got nan, 0.5, 0.5"),
        ({"probabilities": (1.0, 0.0, 0.0)}, "positives and negatives for a correlation"),
        ({"probabilities": (0.0, 0.5, 0.5)}, "positives and negatives for a correlation"),
        ({"tolerance": 1.5}, "tolerance"),
        ({"tolerance": 1}, "tolerance"),
        ({"tolerance": math.nan}, "tolerance"),
        ({"threshold": 0}, "threshold of near-duplicates must be between 0 and 1; got 0"),
        ({"threshold": 1.01}, "threshold of near-duplicates"),
        ({"threshold": math.nan}, "threshold of near-duplicates"),
        ({"limit": 0}, "limit is a positive number"),
        ({"per_entry": -1}, "per_entry is a positive number, or None; got -1"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(BuildError, match=message):
        StsSettings("c", "mit", **settings)


@pytest.mark.parametrize(
    "settings",
    [
        {"test": 300},
        {"test": 0.001},
        {"tolerance": 0},
        {"threshold": 1},
        {"limit": 1, "per_entry": 1},
        {"probabilities": (0.333, 0.333, 0.333)},  # as people round a third
        {"probabilities": (0.5, 0.5, 0.0)},
    ],
)
def test_settings_at_the_edge_are_allowed_and_recorded(settings):
    recorded = json.loads(json.dumps(StsSettings("c", "mit", **settings).to_json()))
    for name, value in settings.items():
        assert recorded[name] == (list(value) if isinstance(value, tuple) else value)


def test_a_name_and_a_version_do_not_change_the_data():
    assert StsSettings("a", "mit").to_json() == StsSettings("b", "cc0", version="2.0.0").to_json()
