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


def check_repository(repository: str, *, public: bool = False, api: HfApi | None = None) -> None:
    """Check that a model may be uploaded to a repository: its name, the login and its visibility.

    Args:
        repository: `ORG/NAME`.
        public: Whether everyone may see it.
        api: Client of the Hub; default one with the token of this machine.

    Raises:
        MarError: The name is not of that form or belongs to this project, nobody is logged in, or the
            repository is public already and `public` was not set.
    """
    from huggingface_hub import HfApi  # lazy: huggingface_hub
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # lazy: huggingface_hub

    if repository.count("/") != 1:
        raise MarError(f"{repository!r} is not of the form ORG/NAME.")
    if is_ours(repository):
        raise MarError(
            f"Names under {repository.partition('/')[0]}/ belong to this project's own models and are never "
            "looked up on the Hub. Give a name under your own account."
        )
    api = api or HfApi()
    try:
        validate_repo_id(repository)
        api.whoami()
    except (ValueError, OSError) as error:  # those of the Hub's client are such
        raise MarError(
            f"{repository} cannot be written ({one_line(error, 300)}). Give ORG/NAME, and log in with 'hf "
            "auth login' or set HF_TOKEN."
        ) from error
    if api.repo_exists(repository) and not public and not api.model_info(repository).private:
        raise MarError(
            f"{repository} is public, so the model would be too. Pass --public to confirm, or give "
            "another name."
        )


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
        MarError: There is no finished model, the name is refused (`check_repository`), or the Hub rejects
            the upload.
    """
    from huggingface_hub import HfApi  # lazy: huggingface_hub

    folder = model_of(model)
    api = api or HfApi()
    check_repository(repository, public=public, api=api)
    try:
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
    except OSError as error:  # those of the Hub's client are such
        raise MarError(f"The Hub rejected {folder}: {one_line(error, 300)}") from error
    return str(commit.commit_url)


def model_of(folder: str | Path) -> Path:
    """Return the model in a folder: that of a finished run, or the folder itself.

    Raises:
        MarError: There is no model, or its weights are not safetensors.
    """
    root = Path(folder)
    model = root / "model" if (root / "recipe.json").is_file() else root
    if not (model / "modules.json").is_file():
        what = "an unfinished run" if model != root else "no folder of a model (no modules.json)"
        raise MarError(f"{root} is {what}. Give a finished run or a model that was saved.")
    pickled = [path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.pkl") for path in model.rglob(pattern)]
    if pickled or not list(model.rglob("*.safetensors")):
        raise MarError(
            f"{model} holds {', '.join(pickled) or 'no weights'}; only safetensors are uploaded. Save the "
            "model again with save_pretrained."
        )
    return model
