from __future__ import annotations

from mar_st.lookup.features import Features, grams, normalise


def test_texts_that_look_alike_have_the_same_features():
    assert normalise("  ＡＢＣ\u3000x\t\n１½ ") == "abc x 11⁄2"
    assert normalise("") == normalise(" \n\u2003") == ""


def test_features_are_runs_of_characters_and_longer_words():
    assert grams("头疼a", (1, 3)) == ["头", "疼", "a", "头疼", "疼a", "头疼a"]
    assert grams("头疼", (2, 4)) == ["头疼"]
    assert [name for name in grams("covid-19 症1234", (1, 3)) if len(name) > 3] == ["\tcovid", "\t1234"]
    assert grams("", (1, 3)) == []


def test_a_word_is_not_a_run_of_characters():
    names = Features(["abcd", "\tabcd"], lengths=(1, 4), max_length=100)
    assert dict(names.counts("abcde")) == {0: 1}
    assert dict(names.counts("abcd")) == {0: 1}
    wider = Features(["abcd", "\tabcd"], lengths=(1, 3), max_length=100)
    assert dict(wider.counts("xx abcd")) == {1: 1}


def test_unknown_features_are_left_out_and_known_ones_counted():
    names = Features(["头", "疼", "头疼"], lengths=(1, 2), max_length=4)
    assert dict(names.counts("头疼，头疼")) == {0: 2, 1: 1, 2: 1}  # the fifth character does not count
    assert dict(names.counts("头疼，头疼", max_length=9)) == {0: 2, 1: 2, 2: 2}
    assert dict(names.counts("😀\ud83d")) == {}


def test_n_grams_longer_than_the_text_cost_nothing():
    assert grams("发热", (1, 10**12)) == grams("发热", (1, 2))
