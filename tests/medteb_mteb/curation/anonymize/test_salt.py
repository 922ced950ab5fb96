"""The secret from which surrogates are derived: kept next to the output, never in it."""

from __future__ import annotations

import re

import pytest

from medteb_mteb.curation.anonymize.salt import salt_for, salt_id
from medteb_mteb.curation.files.records import BuildError


def test_only_the_owner_can_read_the_secret_next_to_the_output(tmp_path):
    salt = salt_for(tmp_path / "out")
    assert len(salt) >= 32
    assert (tmp_path / "out.salt").stat().st_mode & 0o777 == 0o600
    assert salt_for(tmp_path / "out") == salt
    assert [path.name for path in tmp_path.iterdir()] == ["out.salt"]
    assert salt_for(tmp_path / "other") != salt


def test_a_named_file_is_used_and_created_with_its_folder(tmp_path):
    file = tmp_path / "keys" / "secret"
    salt = salt_for(tmp_path / "out", file)
    assert salt_for(tmp_path / "other", str(file)) == salt
    file.write_bytes(b"  mine of sixteen\xff\n")
    assert salt_for(tmp_path / "out", file) == b"mine of sixteen\xff"


@pytest.mark.parametrize("file", ["out/secret", "out/deep/secret", "link/secret", "elsewhere/../out/secret"])
def test_a_secret_that_would_be_published_is_refused(tmp_path, file):
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    with pytest.raises(BuildError, match="would be published with it; keep it elsewhere"):
        salt_for(tmp_path / "out", tmp_path / file)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("content", "number"), [(b"", 0), (b"short\n", 5), (b" " * 40, 0), (b"x" * 15, 15)])
def test_a_secret_that_is_too_short_is_refused(tmp_path, content, number):
    (tmp_path / "out.salt").write_bytes(content)
    with pytest.raises(BuildError, match=rf"out\.salt holds {number} bytes; .* at least 16\. Delete it"):
        salt_for(tmp_path / "out")
    assert (tmp_path / "out.salt").read_bytes() == content


@pytest.mark.parametrize("name", ["folder", "file/secret", "dangling", "x" * 300])
def test_a_file_that_cannot_be_used_is_named(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "gone")
    with pytest.raises(
        BuildError, match=re.escape(f"{tmp_path / name}, the secret of the surrogates, cannot")
    ):
        salt_for(tmp_path / "out", tmp_path / name)


def test_a_fingerprint_tells_secrets_apart_and_does_not_reveal_them():
    salts = [bytes([number]) * 16 for number in range(50)]
    assert len({salt_id(salt) for salt in salts}) == 50
    assert all(re.fullmatch("[0-9a-f]{16}", salt_id(salt)) for salt in salts)
    assert salt_id(b"0" * 16) not in (b"0" * 16).hex()
