"""The public names of `medteb_mteb`."""

import re
from pathlib import Path

import pytest

import medteb_mteb

PAGE = Path(__file__).parents[2] / "docs" / "api" / "medteb_mteb.md"


@pytest.mark.parametrize("name", medteb_mteb.__all__)
def test_every_public_name_exists_and_is_on_the_page_of_the_api(name):
    assert getattr(medteb_mteb, name) is not None
    assert name in re.findall(r"\w+", PAGE.read_text("utf-8"))


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'; it offers .*task_from_folder"):
        _ = medteb_mteb.nothing
