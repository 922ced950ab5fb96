"""Uploading a finished model to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mar_st.errors import MarError
from mar_st.model.names import is_ours

if TYPE_CHECKING:
    from huggingface_hub import HfApi

#: Files of a model folder that are not uploaded: partly written and hidden ones.
IGNORED_PATTERNS = ["*.part", ".*", "*/.*"]


class PushError(MarError):
    """A model that is not uploaded; the message says why."""


def check_repository(repository: str, *, public: bool = False, api: HfApi | None = None) -> None:
    """Check that a model may be uploaded to a repository: its name, the login and its visibility.

    Args:
        repository: `ORG/NAME`.
        public: Whether everyone may see it.
        api: Client of the Hub; default one with the token of this machine.

    Raises:
        PushError: The name is not of that form or belongs to this project, nobody is logged in, or the
            repository is public already and `public` was not set.
    """
    from huggingface_hub import HfApi  # lazy: huggingface_hub
    from huggingface_hub.errors import (  # lazy: huggingface_hub
        HfHubHTTPError,
        HFValidationError,
        LocalTokenNotFoundError,
    )
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # lazy: huggingface_hub

    try:
        validate_repo_id(repository)
    except HFValidationError as error:
        raise PushError(f"{repository!r} is not a valid repository name ({error}). Give ORG/NAME.") from error
    if repository.count("/") != 1:
        raise PushError(f"{repository!r} names no owner; give ORG/NAME.")
    if is_ours(repository):
        raise PushError(
            f"Names under {repository.partition('/')[0]}/ belong to this project's own models and are never "
            "looked up on the Hub. Give a name under your own account."
        )
    api = api or HfApi()
    try:
        api.whoami()
    except (LocalTokenNotFoundError, HfHubHTTPError, OSError) as error:
        raise PushError(
            f"The Hub does not know who you are ({_one_line(error)}). Log in with 'hf auth login', or set "
            "HF_TOKEN."
        ) from error
    if api.repo_exists(repository) and not public and not api.model_info(repository).private:
        raise PushError(
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
    """Upload a model folder with its card.

    Args:
        model: A run folder with a finished model, or the folder of a model.
        repository: `ORG/NAME`; created if it does not exist, private unless `public`.
        public: Whether everyone may see it.
        revision: Branch; created if it does not exist. Default `main`.
        api: Client of the Hub; default one with the token of this machine.

    Returns:
        Address of the commit.

    Raises:
        PushError: There is no finished model, the name is refused (`check_repository`), or the Hub rejects
            the upload.
    """
    from huggingface_hub import HfApi  # lazy: huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError  # lazy: huggingface_hub

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
    except (HfHubHTTPError, OSError) as error:
        raise PushError(f"The Hub rejected {folder}: {_one_line(error)}") from error
    return str(commit.commit_url)


def model_of(folder: str | Path) -> Path:
    """Return the model in a folder: that of a finished run, or the folder itself.

    Raises:
        PushError: There is no model, or its weights are not safetensors.
    """
    root = Path(folder)
    model = root / "model" if (root / "recipe.json").is_file() else root
    if not (model / "modules.json").is_file():
        what = "an unfinished run" if model != root else "no folder of a model (no modules.json)"
        raise PushError(f"{root} is {what}. Give a finished run or a model that was saved.")
    pickled = [path.name for pattern in ("*.bin", "*.pt", "*.pth", "*.pkl") for path in model.rglob(pattern)]
    if pickled or not list(model.rglob("*.safetensors")):
        raise PushError(
            f"{model} holds {', '.join(pickled) or 'no weights'}; only safetensors are uploaded. Save the "
            "model again with save_pretrained."
        )
    return model


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
