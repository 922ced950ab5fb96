from __future__ import annotations

from medteb_mteb.editions import write_manifest
from medteb_mteb.validate.card import card


def test_a_licence_and_an_account_are_enough(look):
    finding = look(card)
    assert (finding.verdict, finding.numbers["licence"]) == ("ok", "cc-by-4.0")


def test_no_licence_fails(look, folder):
    (folder / "README.md").unlink()
    assert look(card).verdict == "fail"
    (folder / "README.md").write_text("---\nlicense: unknown\n---\nText")
    finding = look(card)
    assert (finding.verdict, "no licence is stated" in finding.reason) == ("fail", True)


def test_a_card_that_says_nothing_gives_a_warning(look, folder):
    (folder / "README.md").write_text("---\nlicense: mit\n---\n# Data\n" + "| a | b |\n" * 100)
    finding = look(card)
    assert (finding.verdict, finding.numbers["characters of the card"]) == ("warning", len("# Data"))


def test_card_and_manifest_must_name_the_same_licence(look, folder):
    write_manifest(folder, task="clinic", name="c", version="1", licence="CC-BY-4.0", counts={}, seed=1)
    finding = look(card)
    assert (finding.verdict, finding.numbers["manifest says"]) == ("ok", "seed")
    write_manifest(folder, task="clinic", name="c", version="1", licence="mit", counts={})
    finding = look(card)
    assert (finding.verdict, finding.reason) == ("fail", "the card says cc-by-4.0, the manifest mit")


def test_an_edition_is_no_freer_than_its_sources(look, folder):
    manifest = {"task": "clinic", "name": "c", "version": "1", "licence": "cc-by-4.0", "counts": {}}
    for sources, verdict, words in (
        ([{"name": "web", "licence": "apache-2.0"}], "ok", "licence cc-by-4.0"),
        (
            [{"name": "web", "licence": "cc-by-nc-4.0"}],
            "warning",
            "has cc-by-nc-4.0, which restricts more",
        ),
        ([{"name": "web", "licence": "unknown"}], "warning", "licence of the source web is not known"),
    ):
        write_manifest(folder, **manifest, sources=sources)
        finding = look(card)
        assert finding.verdict == verdict
        assert words in finding.reason
