"""Names of models as users type them: aliases and folders resolve, and are never listed."""

from __future__ import annotations

import pytest

from medteb_mteb.plugin.names import AliasedModels, full_name, full_names, with_argument

ALIASES = {"mini": "org/mini", "lost": "org/lost"}


@pytest.fixture
def models():
    """A table of models, and what mteb sees of it."""
    table = {"org/mini": "the mini one", "org/other": "another"}
    return table, AliasedModels(table, ALIASES)


def test_an_alias_is_found_but_not_listed(models):
    _, seen = models
    assert seen["mini"] == seen["org/mini"] == "the mini one"
    assert "mini" in seen
    assert (list(seen), len(seen)) == (["org/mini", "org/other"], 2)
    assert seen.get("nothing") is None


@pytest.mark.parametrize("name", ["nothing", "org/none", "lost", ""])
def test_an_unknown_name_is_an_ordinary_key_error(models, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyError):
        models[1][name]


@pytest.mark.parametrize("key", [None, 3, ("org/mini",)])
def test_a_key_that_is_no_name_is_not_contained(models, key):
    assert key not in models[1]


def test_changes_reach_the_table_itself(models):
    table, seen = models
    seen["org/new"] = "new"
    del seen["org/other"]
    assert table == {"org/mini": "the mini one", "org/new": "new"}
    table["mini"] = "a model of that very name"
    assert seen["mini"] == "a model of that very name"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder beside which a command runs; its configuration is half written, names do not depend on it."""
    path = tmp_path / "encoder"
    path.mkdir()
    (path / "config.json").write_text('{"model_type": ')
    monkeypatch.chdir(tmp_path)
    return path


def test_a_folder_is_known_by_its_path_and_by_its_bare_name(models, folder):
    seen = models[1]
    for name in (str(folder), "./encoder", "encoder"):
        assert name in seen
        assert full_name(name, ALIASES) == "local/encoder"
    assert len(seen) == 2


def test_the_folder_of_a_run_has_the_name_of_the_run(folder):
    folder.rename(folder.with_name("model"))
    assert full_name("model", ALIASES) == full_name("./model", ALIASES) == f"local/{folder.parent.name}"


@pytest.mark.parametrize(
    ("name", "full"),
    [("mini", "org/mini"), ("org/mini", "org/mini"), ("nothing", "nothing"), (None, None), (3, 3)],
)
def test_only_aliases_and_folders_have_another_full_name(name, full, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert full_name(name, ALIASES) == full


def test_an_alias_wins_over_a_folder_of_its_name(folder):
    folder.rename(folder.with_name("mini"))
    assert full_name("mini", ALIASES) == "org/mini"
    assert full_name("./mini", ALIASES) == "local/mini"


def test_several_names_stay_several_and_a_single_one_stays_single():
    other = object()
    assert full_names(["mini", "org/x", other], ALIASES) == ["org/mini", "org/x", other]
    assert full_names(iter(["mini"]), ALIASES) == ["org/mini"]
    assert full_names("mini", ALIASES) == "org/mini"
    assert (full_names(None, ALIASES), full_names([], ALIASES)) == (None, [])


def shown(first, models="nobody", *rest, flag=False, **more):
    """Shows its arguments."""
    return first, models, rest, flag, more


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        (("a", "b"), {}, ("a", "B", (), False, {})),
        (("a",), {"models": "b", "flag": True}, ("a", "B", (), True, {})),
        (("a", "b", "c"), {"d": 1}, ("a", "B", ("c",), False, {"d": 1})),
        (("a",), {}, ("a", "nobody", (), False, {})),
        ((), {"models": "b", "first": "a"}, ("a", "B", (), False, {})),
    ],
)
def test_an_argument_is_changed_however_it_is_passed(args, kwargs, expected):
    wrapped = with_argument(shown, "models", str.upper)
    assert wrapped(*args, **kwargs) == expected
    assert (wrapped.__name__, wrapped.__doc__) == ("shown", "Shows its arguments.")


def test_wrong_arguments_are_the_usual_type_error():
    with pytest.raises(TypeError, match="first"):
        with_argument(shown, "models", str.upper)()
