"""Tests of the settings that a folder of vectors is encoded with."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mar_st.encode import EncodeSettings
from mar_st.errors import MarError

#: A value of every setting that is not its default.
OTHERS: dict[str, Any] = {
    "dim": 8,
    "precision": "int8",
    "dtype": "bfloat16",
    "prompt": "",
    "max_length": 16,
    "shard": 16,
    "tokens": 128,
}


@pytest.mark.parametrize(
    "options",
    [
        {"precision": "int4"},
        {"precision": ["int8"]},
        {"dtype": "fp8"},
        {"dtype": "bf16"},  # a recorded name
        {"precision": "binary", "dim": 12},
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(MarError, match="got "):
        EncodeSettings(**options)


@pytest.mark.parametrize("name", ["dim", "max_length", "shard", "tokens"])
@pytest.mark.parametrize("number", [0, -1, 1.5, "8", float("nan"), float("inf"), True, [8]])
def test_numbers_that_are_not_whole_or_below_1_are_refused(name: str, number: Any) -> None:
    with pytest.raises(MarError, match=rf"{name} is a whole number, at least 1; got "):
        EncodeSettings(**{name: number})
    assert getattr(EncodeSettings(**{name: 1}), name) == 1


def test_settings_are_recorded_under_stable_names() -> None:
    settings = EncodeSettings(dim=8, precision="int8", dtype="bfloat16", shard=16)
    assert settings.to_json() == {
        "dim": 8,
        "dtype": "int8",
        "precision": "bf16",
        "prompt": None,
        "max_length": None,
        "shard": 16,
        "tokens": None,
    }


@pytest.mark.parametrize("name", [None, *OTHERS])
def test_recorded_settings_are_read_back(name: str | None) -> None:
    settings = EncodeSettings(**{key: value for key, value in OTHERS.items() if key == name})
    recorded = json.loads(json.dumps({**settings.to_json(), "written by a later version": 1}))
    assert EncodeSettings.of_json(recorded) == settings


def test_damaged_records_are_refused() -> None:
    recorded = EncodeSettings().to_json()
    for name in recorded:
        with pytest.raises(KeyError, match=name):
            EncodeSettings.of_json({key: value for key, value in recorded.items() if key != name})
    for damage in ({"precision": "fp8"}, {"dtype": None}, {"shard": "16"}, {"dim": 8.0}):
        with pytest.raises(MarError):
            EncodeSettings.of_json({**recorded, **damage})


def test_every_setting_the_device_and_the_kernel_change_the_identity() -> None:
    identities = [
        EncodeSettings(**{key: value}).identity("cpu", kernel="torch") for key, value in OTHERS.items()
    ]
    identities += [EncodeSettings().identity(device, kernel="torch") for device in ("cpu", "cuda")]
    identities.append(EncodeSettings().identity("cpu", kernel="amx"))
    assert len({json.dumps(identity, sort_keys=True) for identity in identities}) == len(identities) == 10
    assert EncodeSettings().identity("cpu", kernel="torch") in identities


def test_messages_use_the_names_of_the_settings() -> None:
    named = EncodeSettings.named(
        EncodeSettings(precision="int8", dtype="bfloat16").identity("cpu", kernel="torch")
    )
    assert (named["precision"], named["dtype"], named["device"]) == ("int8", "bfloat16", "cpu")
    unknown = EncodeSettings.named({"precision": "fp8"})
    assert (unknown["precision"], unknown["dtype"]) == (None, "fp8")
