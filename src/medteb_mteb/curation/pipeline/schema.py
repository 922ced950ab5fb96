"""A pipeline file: its output folder, its judges and LLM, and its steps in order.

Unknown keys, unknown steps and inputs that do not fit fail before anything is read.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from pydantic import Field, ValidationError, field_validator

from mar_st.files.yaml_text import YamlError, parse_yaml
from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.judge import load_judges
from medteb_mteb.curation.llm import load_llm
from medteb_mteb.curation.pipeline.registry import AnyStep  # noqa: TC001 - pydantic needs it
from medteb_mteb.curation.pipeline.settings import PipelineSettings

__all__ = ["DATA_FOLDER", "Pipeline", "beside", "load_pipeline"]

#: Folder of a build with the editions and training sets of all its steps.
DATA_FOLDER = "data"
#: Folders of a build that belong to no step.
RESERVED_NAMES = (DATA_FOLDER, "teacher-store")


class Pipeline(PipelineSettings):
    """One build: the settings that all steps share, and the steps.

    Attributes:
        steps: The steps, in the order of execution.
    """

    steps: tuple[AnyStep, ...] = Field(min_length=1)

    @field_validator("steps")
    @classmethod
    def _check_distinct(cls, steps: tuple[AnyStep, ...]) -> tuple[AnyStep, ...]:
        # Some file systems do not distinguish upper and lower case.
        names = Counter(step.name.casefold() for step in steps)
        twice = sorted(step.name for step in steps if names[step.name.casefold()] > 1)
        if twice:
            raise ValueError(f"two steps are called {twice[0]!r}; give one of them another 'name'")
        reserved = [name for name in RESERVED_NAMES if names[name]]
        if reserved:
            raise ValueError(f"{reserved[0]!r} is a folder of the build; give the step another 'name'")
        tasks = [task for step in steps for task in step.TASKS]
        twice = sorted({task for task in tasks if tasks.count(task) > 1})
        if twice:
            raise ValueError(f"two steps write the edition {twice[0]}; put one of them into another pipeline")
        return steps


def load_pipeline(path: str | Path) -> Pipeline:
    """Return the pipeline of a YAML file.

    Raises:
        BuildError: The file does not exist, or its content does not fit `Pipeline`.
    """
    try:
        # Links are resolved: the paths inside are relative to the folder of the linked file.
        file = Path(path).resolve()
    except RuntimeError as error:
        raise BuildError(f"{path} cannot be read (a link that leads to itself).") from error
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BuildError(f"{file} cannot be read ({error.strerror}).") from error
    except (YamlError, UnicodeDecodeError) as error:
        raise BuildError(f"{file} is not valid YAML: {' '.join(str(error).split())[:300]}") from error
    if not isinstance(content, dict):
        raise BuildError(f"{file} must be a mapping with 'steps', a list.")
    if isinstance(content.get("judges"), str):
        content["judges"] = load_judges(beside(file.parent, content["judges"]))
    elif isinstance(content.get("judges"), list):
        content["judges"] = {"judges": content["judges"]}
    steps = content.get("steps")
    for part in (content, *(steps if isinstance(steps, list) else ())):
        if isinstance(part, dict) and isinstance(part.get("llm"), str):
            part["llm"] = load_llm(beside(file.parent, part["llm"]))
    try:
        pipeline = Pipeline.model_validate(content)
    except ValidationError as error:
        raise BuildError(f"{file}: {_first(error)}") from error
    return pipeline


def beside(folder: Path, path: str) -> Path:
    """Return a path of a pipeline file, which is relative to the folder of the file; `~` is the home folder.

    Raises:
        BuildError: It cannot be a path.
    """
    try:
        if "\0" in path:
            raise ValueError("it holds a null character")
        return folder / Path(path).expanduser()
    except (RuntimeError, ValueError) as error:  # ~name of a user that does not exist
        raise BuildError(f"{path!r} is not a path ({str(error).rstrip('.')}). Give another one.") from error


def _first(error: ValidationError) -> str:
    lines = []
    errors = error.errors()
    # Pydantic also calls a tuple with invalid items too short.
    for one in [e for e in errors if e["type"] != "too_short" or len(errors) == 1][:5]:
        message = one["msg"].replace("Value error, ", "")
        if one["type"] == "union_tag_invalid":
            context = one.get("ctx", {})
            message = f"{context.get('tag')!r} is not a step; choose from {context.get('expected_tags')}"
        elif one["type"] == "tuple_type":
            message = "must be a list"
        elif one["type"] == "union_tag_not_found":
            message = "the key 'step' is missing"
        lines.append(f"{'.'.join(map(str, one['loc'])) or 'file'}: {message}")
    return "; ".join(lines)
