"""The option that says where texts come from."""

from __future__ import annotations

import pytest

from medteb_mteb.commands.sources import parse_sources
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.files.sources import TextSource


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ()),
        (["huatuo=apache-2.0"], (TextSource(name="huatuo", licence="apache-2.0"),)),
        (
            ["b=unknown", " a = cc-by-4.0 "],  # in the order given
            (TextSource(name="b", licence="unknown"), TextSource(name="a", licence="cc-by-4.0")),
        ),
        (["a=b=mit"], (TextSource(name="a=b", licence="mit"),)),
        (
            ["terms=https://example.org/?a=b"],
            (TextSource(name="terms", licence="https://example.org/?a=b"),),
        ),
    ],
)
def test_sources_have_the_name_and_licence_of_the_option(given, expected):
    assert parse_sources(given) == expected


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("huatuo", "--source takes NAME=LICENCE, for instance huatuo=apache-2.0; got 'huatuo'"),
        ("=mit", "--source =mit: "),
        ("a=", "--source a=: '' is not a licence"),
        ("a=my own terms", "'my own terms' is not a licence"),
        ("a\nb=mit", "one line of text"),
    ],
)
def test_a_source_without_name_or_licence_is_refused(entry, message):
    with pytest.raises(BuildError) as caught:
        parse_sources(["huatuo=apache-2.0", entry])
    assert message in str(caught.value)
