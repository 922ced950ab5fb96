"""Uploads to a fake Hub."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import LocalTokenNotFoundError

from mar_st.errors import MarError
from mar_st.model.hub import push


class FakeHub:
    """Records its calls; `repositories` says which of them are private."""

    def __init__(self, repositories=None, *, known=True):
        self.repositories, self.known = dict(repositories or {}), known
        self.branches, self.files = [], {}

    def repo_exists(self, repo_id):
        return repo_id in self.repositories

    def model_info(self, repo_id):
        return SimpleNamespace(private=self.repositories[repo_id])

    def create_repo(self, repo_id, *, private, exist_ok):
        assert exist_ok
        if not self.known:
            raise LocalTokenNotFoundError("Token is required")
        self.repositories.setdefault(repo_id, private)

    def create_branch(self, repo_id, *, branch, exist_ok):
        assert exist_ok
        self.branches.append((repo_id, branch))

    def upload_folder(self, *, repo_id, folder_path, revision, ignore_patterns, commit_message):
        from huggingface_hub.utils import filter_repo_objects

        names = [p.relative_to(folder_path).as_posix() for p in folder_path.rglob("*") if p.is_file()]
        self.files[repo_id] = sorted(filter_repo_objects(names, ignore_patterns=ignore_patterns))
        self.message = commit_message
        return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/1")


@pytest.fixture
def saved(mar, tmp_path):
    mar.save_pretrained(str(tmp_path / "run" / "model"), create_model_card=False)
    (tmp_path / "run" / "recipe.json").write_text(json.dumps({"name": "tiny"}), encoding="utf-8")
    return tmp_path / "run"


def test_a_finished_run_becomes_a_private_model(saved):
    api = FakeHub()
    (saved / "model" / "model.part").write_text("half", encoding="utf-8")
    (saved / "model" / ".secret").write_text("mine", encoding="utf-8")
    assert push(saved, "me/tiny", api=api) == "https://hub/me/tiny/commit/1"
    assert api.repositories == {"me/tiny": True}
    assert api.branches == []
    assert api.message == "Upload run"
    kept = [p.relative_to(saved / "model").as_posix() for p in (saved / "model").rglob("*") if p.is_file()]
    assert api.files["me/tiny"] == sorted(set(kept) - {"model.part", ".secret"})
    assert "modules.json" in api.files["me/tiny"]


def test_a_folder_can_be_pushed_to_a_branch_of_a_public_repository(saved):
    api = FakeHub()
    push(saved / "model", "me/tiny", public=True, revision="v2", api=api)
    assert api.repositories == {"me/tiny": False}
    assert api.branches == [("me/tiny", "v2")]


def test_pushing_to_a_public_repository_needs_consent(saved):
    api = FakeHub({"me/open": False, "me/closed": True})
    with pytest.raises(MarError, match="me/open is public"):
        push(saved, "me/open", api=api)
    assert api.files == {}
    push(saved, "me/open", public=True, api=api)
    push(saved, "me/closed", api=api)
    assert sorted(api.files) == ["me/closed", "me/open"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("medteb/mar-mine", "belong to this project"),
        ("MedTEB/mar-mine", "belong to this project"),
        ("tiny", "ORG/NAME"),
        ("a/b/c", "ORG/NAME"),
    ],
)
def test_invalid_repository_names_are_refused(saved, name, message):
    with pytest.raises(MarError, match=message):
        push(saved, name, api=FakeHub())


def test_pushing_without_a_login_is_refused(saved):
    with pytest.raises(MarError, match="hf auth login"):
        push(saved, "me/tiny", api=FakeHub(known=False))


def test_folders_without_a_finished_model_are_refused(saved, tmp_path):
    with pytest.raises(MarError, match="no finished model"):
        push(tmp_path, "me/tiny", api=FakeHub())
    (saved / "model" / "optimizer.pt").write_bytes(b"pickle")
    with pytest.raises(MarError, match=r"optimizer\.pt"):
        push(saved, "me/tiny", api=FakeHub())
    (saved / "model").rename(saved / "elsewhere")
    with pytest.raises(MarError, match="no finished model"):
        push(saved, "me/tiny", api=FakeHub())
