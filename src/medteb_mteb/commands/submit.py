"""`medteb submit`: check results, and write what mteb's repository of results takes."""

from __future__ import annotations

import json
import shlex
import shutil
import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from mar_st.errors import MarError
from mar_st.files import finished_folder, write_text
from mar_st.options import Argument, Settings, Switch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.report.page import Page
    from medteb_mteb.validate.results import Checked, Revision


class SubmitSettings(Settings):
    """Options of `medteb submit`."""

    results: Annotated[Path, Argument()] = Field(
        description="Output folder of 'medteb run' or 'mteb run'; it is not changed."
    )
    out: Annotated[Path, Argument()] = Field(description="New folder to write the submission to.")
    models: Annotated[tuple[str, ...], Switch("-m", "--model")] = Field(
        (), description="Model to submit; default: all. May be repeated."
    )
    tasks: Annotated[tuple[str, ...], Switch("-t", "--task")] = Field(
        (), description="Task to submit; default: all. May be repeated."
    )


@dataclass(frozen=True)
class Submission:
    """Outcome of `medteb submit`.

    Attributes:
        page: What reviewers would send back, and what is held back.
        command: The command to run next; None if no result is ready.
    """

    page: Page
    command: str | None

    @property
    def failed(self) -> bool:
        """Return True if a result would be sent back."""
        return self.page.failed

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**self.page.to_json(), "command": self.command}


def submit(settings: SubmitSettings) -> Submission:
    """Check results, and prepare those that are ready for mteb's repository of results.

    The page names what a reviewer of the repository would send back: revision, metadata and training data of
    models, missing splits, other data, and so on. Results of models, tasks and data of this machine are named
    and held back. OUT receives the results in the layout of the repository, `model-card/` (the results for
    the card of each model) and `pull-request.md`; the last line is the command that commits the results. The
    exit code is 1 if a result would be sent back.
    """
    results, out = settings.results.expanduser(), settings.out.expanduser()
    if not results.is_dir():
        raise MarError(f"{results} is not a folder. Give the output folder of medteb run.")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise MarError(f"{out} is not empty. Give a new folder, so that nothing else is submitted.")
    from mteb.cache import ResultCache  # lazy: mteb

    from medteb_mteb.models.metas import ALIASES  # lazy: mteb
    from medteb_mteb.validate.results import check_results  # lazy: mteb

    models = [ALIASES.get(name, name) for name in settings.models]
    checked = check_results(ResultCache(results), models, settings.tasks)
    page = checked.page(f"Results in {results}; those that are ready are written to {out}.")
    if not checked.revisions:
        return Submission(page, None)
    title = _title(checked.revisions)
    with finished_folder(out) as part:
        for revision in checked.revisions:
            _write_results(revision, part / "results" / revision.folder.parent.name / revision.folder.name)
        for name, revisions in _by_model(checked.revisions).items():
            write_text(part / "model-card" / f"{name}.md", _model_card(revisions))
        write_text(part / "pull-request.md", _pull_request(title, checked))
    return Submission(
        page, shlex.join(["mteb", "submit-results", "--output-folder", str(out), "--message", title])
    )


def as_text(submission: Submission) -> str:
    """Return the page as Markdown, and the command to run next as the last line."""
    from medteb_mteb.report.page import to_markdown  # lazy: numpy

    return "\n".join([to_markdown(submission.page), submission.command or ""]).rstrip()


def _by_model(revisions: Sequence[Revision]) -> dict[str, list[Revision]]:
    """Return the revisions by the folder of their model."""
    models = defaultdict(list)
    for revision in revisions:
        models[revision.folder.parent.name].append(revision)
    return models


def _title(revisions: Sequence[Revision]) -> str:
    names = list(dict.fromkeys(revision.name for revision in revisions))
    shown = ", ".join(names[:2]) + (f" and {len(names) - 2} more" if len(names) > 2 else "")
    return f"Add results of {shown}"


def _write_results(revision: Revision, folder: Path) -> None:
    """Write a folder of the repository: results, metadata, and settings of these tasks."""
    from medteb_mteb.validate.results import META, SETTINGS  # lazy: mteb

    folder.mkdir(parents=True)
    for task, result in revision.results.items():
        result.to_disk(folder / f"{task}.json")
    shutil.copyfile(revision.folder / META, folder / META)
    lines = (json.dumps(line) for line in revision.settings if line.get("task") in revision.results)
    write_text(folder / SETTINGS, "".join(f"{line}\n" for line in lines))


def _model_card(revisions: Sequence[Revision]) -> str:
    """Return a model card that holds the results only, in the Hub's header `model-index`."""
    from huggingface_hub import ModelCardData  # lazy: huggingface_hub

    found: list[Any] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # mteb prefers its own upload, to the same card
        for result in (one for revision in revisions for one in revision.results.values()):
            found += [
                replace(one, dataset_revision=result.dataset_revision) for one in result.get_hf_eval_results()
            ]
    header = ModelCardData(model_name=revisions[0].name, tags=["mteb"], eval_results=found).to_yaml()
    return f"---\n{header}\n---\n"


def _pull_request(title: str, checked: Checked) -> str:
    """Return the text of the pull request: scores, models, what reviewers ask about, mteb's checklist."""
    from mteb.cache.result_cache import _prepare_pr_body  # lazy: mteb

    from medteb_mteb.report.page import markdown_table  # lazy: numpy

    revisions = checked.revisions
    tasks = sorted({task for revision in revisions for task in revision.results})
    scores = [["model", *tasks]]
    models = [["model", "revision", "parameters", "memory (MiB)", "licence", "framework", "trained on"]]
    for revision in revisions:
        found, meta = revision.results, revision.meta
        assert meta is not None  # noqa: S101 -- without metadata, nothing is ready
        scores.append(
            [revision.name, *(f"{found[task].get_score():.4f}" if task in found else "-" for task in tasks)]
        )
        trained = ", ".join(revision.trained_on()) or "none of these tasks"
        facts = (
            None if meta.n_parameters is None else f"{meta.n_parameters:,}",
            meta.memory_usage_mb,
            meta.license,
            ", ".join(meta.framework) or None,
            None if meta.training_datasets is None else trained,
        )
        shown = ("not stated" if fact is None else str(fact) for fact in facts)
        models.append([revision.name, revision.folder.name, *shown])
    asked = [f"- {model}, {tasks}: {problem}" for model, tasks, _, problem in checked.open_questions()]
    files = {
        one.meta: [Path(f"{task}.json") for task in one.results] for one in revisions if one.meta is not None
    }
    return (
        "\n\n".join(
            [
                f"# {title}",
                "Main scores:",
                markdown_table(scores, numbers=True),
                markdown_table(models),
                *(["To be disclosed or answered:", "\n".join(asked)] if asked else []),
                _prepare_pr_body(list(files), files),
            ]
        )
        + "\n"
    )
