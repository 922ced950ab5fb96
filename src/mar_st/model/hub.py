"""Uploading a finished model to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.files import one_line
from mar_st.model.names import is_ours

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: Files of a model folder that are not uploaded: partly written and hidden ones.
IGNORED_PATTERNS = ["*.part", ".*", "*/.*"]


def push(
    model: str | Path,
    repository: str,
    *,
    public: bool = False,
    revision: str | None = None,
    api: HfApi | None = None,
) -> str:
    """Upload a model folder with its card, and return the address of the commit.

    Args:
        model: A run folder with a finished model, or the folder of a model.
        repository: `ORG/NAME`; created if it does not exist, private unless `public`.
        public: Whether everyone may see it.
        revision: Branch; created if it does not exist. Default `main`.
        api: Client of the Hub; default one with the token of this machine.

    Raises:
        MarError: There is no finished model, the name belongs to this project, the repository is public and
            `public` was not set, nobody is logged in, or the Hub rejects the upload.
    """
    from huggingface_hub import HfApi  # lazy: huggingface_hub

    folder = model_of(model)
    api = api or HfApi()
    if repository.count("/") != 1 or is_ours(repository):
        raise MarError(
            f"{repository!r} should be ORG/NAME under your own account; names under medteb/ belong to this "
            "project's own models and are never looked up on the Hub."
        )
    try:
        if api.repo_exists(repository) and not public and not api.model_info(repository).private:
            raise MarError(
                f"{repository} is public, so the model would be too. Pass --public to confirm, or give "
                "another name."
            )
        api.create_repo(repository, private=not public, exist_ok=True)
        if revision is not None:
            api.create_branch(repository, branch=revision, exist_ok=True)
        commit: Any = api.upload_folder(
            repo_id=repository,
            folder_path=folder,
            revision=revision,
            ignore_patterns=IGNORED_PATTERNS,
            commit_message=f"Upload {folder.parent.name if folder.name == 'model' else folder.name}",
        )
    except (ValueError, OSError) as error:  # those of the Hub's client are such
        if isinstance(error, MarError):
            raise
        raise MarError(
            f"The Hub rejected {folder} as {repository} ({one_line(error, 300)}). Log in with 'hf auth "
            "login' or set HF_TOKEN."
        ) from error
    return str(commit.commit_url)


def model_of(folder: str | Path) -> Path:
    """Return the model in a folder: that of a finished run, or the folder itself.

    Raises:
        MarError: There is no model, or its weights are not safetensors.
    """
    root = Path(folder)
    model = root / "model" if (root / "recipe.json").is_file() else root
    pickled = [path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.pkl") for path in model.rglob(pattern)]
    if pickled or not (model / "modules.json").is_file() or not list(model.rglob("*.safetensors")):
        raise MarError(
            f"{root} is no finished model (modules.json, weights as safetensors only; it holds "
            f"{', '.join(pickled) or 'no others'}). Give a finished run, or save the model again."
        )
    return model
