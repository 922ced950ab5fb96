"""Classes of saved modules: those of this package need no consent, others do."""

from __future__ import annotations

import pytest
from sentence_transformers.sentence_transformer.modules import Pooling

from mar_st.lookup.module import LookupEncoder
from mar_st.modules.bigrams import BigramTransformer
from mar_st.modules.own import OWN_MODULES, module_class


@pytest.mark.parametrize("kind", [BigramTransformer, LookupEncoder])
def test_classes_of_this_package_are_found_by_the_name_that_models_save(kind, tmp_path):
    name = f"{kind.__module__}.{kind.__qualname__}"
    assert OWN_MODULES[name] is kind
    assert module_class(name, str(tmp_path)) is kind


def test_classes_of_sentence_transformers_are_imported_by_it(tmp_path):
    assert module_class("sentence_transformers.models.Pooling", str(tmp_path)) is Pooling


@pytest.mark.parametrize("name", ["os.system", "mar_st.cli.main", "evil.Module"])
def test_other_classes_are_refused(name, tmp_path):
    (tmp_path / "evil.py").write_text("raise SystemExit('imported')\n")
    with pytest.raises(ValueError, match=r"trust_remote_code|not|remote"):
        module_class(name, str(tmp_path))
