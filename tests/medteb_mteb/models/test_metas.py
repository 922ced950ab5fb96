"""Metadata of the models of this package, and where their weights come from."""

from __future__ import annotations

import logging
import sys
import types

import mteb
import numpy as np
import pytest
from mteb.types import PromptType
from tests.medteb_mteb.models.encoding import encode

from mar_st.errors import MarError
from mar_st.model import names
from medteb_mteb.models import metas
from medteb_mteb.models.local import folder_revision


def mini(monkeypatch, folder):
    """Metadata of the packaged model, for which a folder stands."""
    monkeypatch.setattr(names, "packaged_folder", lambda: folder)
    fields = {"license": "apache-2.0", "training_datasets": set(metas._MEDTEB_TASKS)}
    return metas._mar_meta("mar-mini", folder, **fields)


def test_mini_is_loaded_from_the_package(saved, monkeypatch, data_root):
    meta = mini(monkeypatch, saved)
    assert (meta.name, meta.revision) == ("medteb/mar-mini", folder_revision(saved))
    assert meta.embed_dim == [8, 12, 16]
    assert meta.is_zero_shot_on(["MedTEBRetrieval"]) is False
    assert meta.is_zero_shot_on(["CMedQAv1-reranking"]) is True
    encoder = meta.load_model(device="cpu")
    result = mteb.evaluate(encoder, mteb.get_task("MedTEBRetrieval"), cache=None, show_progress_bar=False)
    assert 0 <= result.task_results[0].get_score() <= 1


def test_a_model_is_loaded_with_fewer_dimensions(saved, monkeypatch):
    meta = mini(monkeypatch, saved)
    full, cut = (meta.load_model(device="cpu", embed_dim=dim) for dim in (None, 8))
    texts = ["感冒发烧吃什么药", "血压高怎么办"]
    for role in (PromptType.query, PromptType.document):
        np.testing.assert_allclose(
            encode(cut, texts, role=role), encode(full, texts, role=role)[:, :8], atol=1e-6
        )
    with pytest.raises(ValueError, match="supported embedding dimensions"):
        meta.load_model(device="cpu", embed_dim=1000)


def test_mini_without_weights_says_how_to_train_it(tmp_path, monkeypatch):
    with pytest.raises(MarError, match="mar train mar-mini"):
        mini(monkeypatch, tmp_path / "absent").load_model()


def test_mar_zh_is_known_before_it_is_installed(monkeypatch):
    monkeypatch.setattr(metas, "trained_folder", lambda name: None)
    monkeypatch.setattr(metas, "installed_folder", lambda name: None)
    assert (metas._zh_meta().revision, metas._zh_meta().n_parameters) == ("not-installed", 68_346_880)


def test_a_trained_folder_comes_before_the_published_weights(saved, monkeypatch):
    home = saved.parent
    saved.rename(home / "mar-0.3b-4b")
    monkeypatch.setenv("MAR_HOME", str(home))
    meta = metas._large_meta("mar-0.3b-4b", 1, 1)
    assert meta.similarity_fn_name.value == "cosine"
    assert meta.license is None
    assert max(meta.embed_dim) == 16
    encoder = meta.load_model(device="cpu")
    assert encode(encoder, ["头疼"], role=PromptType.query).shape == (1, 16)


def published(monkeypatch, assemble) -> None:
    module = types.ModuleType("mar_st.model.published")
    module.assemble = assemble
    monkeypatch.setitem(sys.modules, "mar_st.model.published", module)


def test_published_weights_show_their_licence(mar, monkeypatch, tmp_path, caplog):
    asked = []
    published(monkeypatch, lambda source, **options: asked.append(source) or mar)
    monkeypatch.delenv("MAR_HOME", raising=False)
    with caplog.at_level(logging.WARNING):
        encoder = mteb.get_model("mar-0.3b-8b", device="cpu")
    assert "PhilipGAQ/CARE-0.3B-8B, licence cc-by-nc-sa-4.0" in caplog.text
    assert asked == ["PhilipGAQ/CARE-0.3B-8B"]
    assert encoder.mteb_model_meta.license == "cc-by-nc-sa-4.0"
    assert encoder.mteb_model_meta.similarity_fn_name.value == "dot"

    (tmp_path / "CARE-0.3B-8B").mkdir()  # a downloaded copy
    monkeypatch.setenv("MAR_HOME", str(tmp_path))
    mteb.get_model("mar-0.3b-8b", device="cpu")
    assert asked[1:] == [str(tmp_path / "CARE-0.3B-8B")]


def test_without_any_weights_both_ways_are_named(monkeypatch):
    def assemble(source, **options):
        raise OSError(f"{source} is not reachable\nand more")

    published(monkeypatch, assemble)
    with pytest.raises(MarError) as caught:
        mteb.get_model("mar-0.3b-4b")
    message = str(caught.value)
    assert "mar train mar-0.3b-4b" in message
    assert "MAR_HOME" in message
    assert "PhilipGAQ/CARE-0.3B-4B (cc-by-nc-sa-4.0)" in message
    assert "OSError: PhilipGAQ/CARE-0.3B-4B is not reachable" in message


@pytest.mark.parametrize(
    "name", ["mar-mini", "mar-zh", "mar-0.3b-4b", "mar-0.3b-8b", "bm25-jieba", "bm25-char-bigram"]
)
def test_fields_of_leaderboards_are_filled(name):
    meta = mteb.get_model_meta(name)
    for field in ("release_date", "public_training_code", "n_parameters", "license", "languages"):
        assert getattr(meta, field) is not None, field
