"""Encoders of a build, by the names that users give."""

from __future__ import annotations

import pytest

from mar_st.model.names import model_source
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.pooling.encoders import encoder_source


def test_folders_and_names_of_the_hub_are_kept(tmp_path):
    (tmp_path / "model").mkdir()
    assert encoder_source(str(tmp_path / "model")) == str(tmp_path / "model")
    assert encoder_source("BAAI/bge-m3") == "BAAI/bge-m3"


def test_the_packaged_model_is_found_unless_a_folder_has_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert encoder_source("mar-mini") == model_source("mar-mini") != "mar-mini"
    (tmp_path / "mar-mini").mkdir()
    assert encoder_source("mar-mini") == "mar-mini"


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/folder", "medteb/unknown"])
def test_missing_folders_and_unknown_models_are_one_error(name):
    with pytest.raises(BuildError) as error:
        encoder_source(name)
    assert name.rpartition("/")[2] in str(error.value)
