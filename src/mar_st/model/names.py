"""Names of models, and their folders on this machine.

Names under `medteb/`, and their short forms, belong to this project and not to the Hub, where anyone could
register them. They are resolved here and never requested from the Hub.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from mar_st.errors import MarError

ORGANISATION = "medteb"

#: Environment variable with the folder that holds trained models by their short names.
HOME_VARIABLE = "MAR_HOME"

#: The model that ships with the package, by its short name.
PACKAGED_MODEL = "mar-mini"

#: Short names of models that are trained, or built from their authors' published weights (Hub names).
PUBLISHED_MODELS = {"mar-0.3b-4b": "PhilipGAQ/CARE-0.3B-4B", "mar-0.3b-8b": "PhilipGAQ/CARE-0.3B-8B"}

#: Short names of models that have separate packages, and the names of these packages.
INSTALLABLE_MODELS = {"mar-zh": "mar_zh"}

#: Short names of all models; each may follow `medteb/`.
KNOWN_MODELS = (PACKAGED_MODEL, *INSTALLABLE_MODELS, *PUBLISHED_MODELS)


def model_folder(source: str | Path) -> Path | None:
    """Return the folder of a model on this machine: the one given, or that of a name of this project.

    `mar-mini` is the packaged model, `mar-zh` that of the package of this name, `mar-0.3b-4b` and
    `mar-0.3b-8b` are folders of `$MAR_HOME`. A folder in the working directory wins over a model of the same
    name.

    Args:
        source: A folder, or a name.

    Returns:
        The folder; `None` if the source can only be a Hub name.

    Raises:
        MarError: The source is a path to a missing folder, or a name of this project that is unknown or whose
            model is not on this machine.
    """
    text, folder = str(source), Path(source).expanduser()
    if folder.is_dir():
        return folder
    if is_ours(text):
        return _known_folder(text)
    if isinstance(source, Path) or folder.is_absolute() or text.startswith((".", "~")) or text.count("/") > 1:
        raise MarError(
            f"There is no folder {text}. Give the folder of a model, a Hub name or one of "
            f"{', '.join(KNOWN_MODELS)}."
        )
    return None


def is_ours(name: str) -> bool:
    """Tell whether a name belongs to this project: a known short name, or any name under `medteb/`."""
    # Names of the Hub ignore case.
    return name in KNOWN_MODELS or name.casefold().startswith(f"{ORGANISATION}/")


def check_dataset(name: str) -> None:
    """Refuse to ask the Hub for a data set whose name belongs to this project.

    Raises:
        MarError: The name belongs to this project.
    """
    if is_ours(name):
        raise MarError(
            f"names under {ORGANISATION}/ are this project's own and are never looked up on the Hub; "
            "`medteb edition show TASK` shows the folder of packaged data"
        )


def model_source(source: str | Path) -> str:
    """Return the source for a loader of sentence-transformers: a local folder or a Hub name.

    Raises:
        MarError: See `model_folder`.
    """
    return str(model_folder(source) or source)


def packaged_folder() -> Path:
    """Return the folder of the packaged model, which an installation may lack."""
    return Path(__file__).parents[1] / "models" / PACKAGED_MODEL


def home() -> Path | None:
    """Return the folder that `$MAR_HOME` names."""
    value = os.environ.get(HOME_VARIABLE)
    return Path(value).expanduser() if value else None


def trained_folder(short: str) -> Path | None:
    """Return the folder `$MAR_HOME/<short>` if it holds a saved model."""
    root = home()
    folder = root / short if root is not None else None
    return folder if folder is not None and (folder / "modules.json").is_file() else None


def installed_folder(short: str) -> Path | None:
    """Return the packed folder of a model that has a separate package; `None` if it is not installed.

    `mar_st.model.packed.unpacked_folder` makes a model folder of it.
    """
    spec = find_spec(INSTALLABLE_MODELS[short])
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations))) / "model"


def _known_folder(name: str) -> Path:
    short = name.removeprefix(f"{ORGANISATION}/")
    if short not in KNOWN_MODELS:
        raise MarError(
            f"There is no model {name}. Names under {ORGANISATION}/ are this project's own and are never "
            f"looked up on the Hub; known are {', '.join(KNOWN_MODELS)}."
        )
    if short == PACKAGED_MODEL and (packaged_folder() / "modules.json").is_file():
        return packaged_folder()
    if (trained := trained_folder(short)) is not None:
        return trained
    if short in INSTALLABLE_MODELS and (packed := installed_folder(short)) is not None:
        from mar_st.model.packed import unpacked_folder  # lazy: torch

        return unpacked_folder(packed, short)
    ways = [f"train it with `mar train {short}` and put the model's folder at ${HOME_VARIABLE}/{short}"]
    if short in INSTALLABLE_MODELS:
        ways.append(f"run `pip install ./models/{short}` in a clone of the repository")
    if short in PUBLISHED_MODELS:
        ways.append(
            "build that folder from the published weights: mar_st.model.published.assemble("
            f"{PUBLISHED_MODELS[short]!r}).save_pretrained(FOLDER)"
        )
    raise MarError(f"{short} is not on this machine (${HOME_VARIABLE} is {home()}): {'; or '.join(ways)}.")
