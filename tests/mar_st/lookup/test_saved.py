"""Files of a saved lookup encoder: errors name missing, damaged and foreign files."""

from __future__ import annotations

import json

import pytest

from mar_st.lookup import LookupEncoder, LookupEncoderError
from mar_st.lookup.features import Features
from mar_st.lookup.saved import CONFIG_KEYS, DICTIONARY, saved_features

NAMES = ["头", "疼", "头疼", "\tabc"]


@pytest.fixture
def files(tmp_path):
    """Arguments of `saved_features` for a dictionary of four features and eight dimensions."""
    features = Features(NAMES, lengths=(1, 2), max_length=64)
    dictionary = tmp_path / DICTIONARY
    dictionary.write_text(features.to_json(), encoding="utf-8")
    config = {"embedding_dimension": 8, "lengths": [1, 2], "max_length": 64, "dictionary": features.digest()}
    return {"place": "org/lookup", "config": config, "dictionary": dictionary, "table": (4, 8)}


def test_a_dictionary_is_read_as_it_was_written(files):
    features = saved_features(**files)
    assert (features.names, features.lengths, features.max_length) == (NAMES, (1, 2), 64)
    assert features.counts("头疼ABC") == {0: 1, 1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("missing", [*CONFIG_KEYS, None])
def test_a_missing_setting_or_file_is_reported(files, missing):
    if missing is None:
        files["dictionary"] = None
    else:
        files["config"].pop(missing)
    with pytest.raises(LookupEncoderError, match=r"org/lookup lacks config\.json or features\.json"):
        saved_features(**files)


@pytest.mark.parametrize(
    ("table", "change"),
    [((5, 8), {}), ((4, 9), {}), (None, {}), ((4, 8), {"dictionary": "0" * 64})],
)
def test_a_table_or_dictionary_of_another_encoder_is_reported(files, table, change):
    files["config"] |= change
    with pytest.raises(LookupEncoderError, match="lookup is made of files that come from different encoders"):
        saved_features(**{**files, "table": table})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "org/lookup cannot be read"),
        ('["头", "头"]', "features, each once; got 2 with 1 different"),
        ('["头", 3]', "is a list of texts"),
        ("[]", "needs features, each once; got 0"),
    ],
)
def test_a_dictionary_that_is_none_is_reported(files, content, message):
    files["dictionary"].write_text(content, encoding="utf-8")
    with pytest.raises(LookupEncoderError, match=message):
        saved_features(**files)


@pytest.mark.parametrize("value", [True, 8.0, "8"])
def test_numbers_are_whole_ones(files, value):
    files["config"]["embedding_dimension"] = value
    with pytest.raises(LookupEncoderError, match=r"config\.json of org/lookup is damaged: .*whole numbers"):
        saved_features(**files)


def test_files_that_do_not_belong_together_are_refused(fitted, tmp_path):
    fitted.save(str(tmp_path))
    LookupEncoder.load(str(tmp_path))
    names = json.loads((tmp_path / "features.json").read_text(encoding="utf-8"))
    (tmp_path / "features.json").write_text(json.dumps(["另", *names[1:]]))
    with pytest.raises(LookupEncoderError, match="come from different encoders"):
        LookupEncoder.load(str(tmp_path))
    (tmp_path / "features.json").unlink()
    with pytest.raises(LookupEncoderError, match=r"lacks config.json or features.json"):
        LookupEncoder.load(str(tmp_path))


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": 3},
        {"lengths": [1, "3"]},
        {"lengths": [1]},
        {"max_length": "9"},
        {"embedding_dimension": None},
    ],
)
def test_settings_of_the_wrong_type_are_one_error(fitted, tmp_path, change):
    fitted.save(str(tmp_path))
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    with pytest.raises(LookupEncoderError, match=r"config\.json of .* is damaged"):
        LookupEncoder.load(str(tmp_path))
