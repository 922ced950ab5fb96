"""A ladder: query encoders of several sizes for one document space, in one folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import set_seed

from mar_st.files import JsonError, read_json, write_json, write_text
from mar_st.files.digests import refresh_digests
from mar_st.files.locks import alone
from mar_st.files.packages import need_packages
from mar_st.lookup import fit_lookup
from mar_st.model.context_means import HiddenMeans, sample
from mar_st.model.family import add_query_encoder
from mar_st.model.hidden_states import ContextMeansError
from mar_st.model.mar import MAR
from mar_st.model.opening import route
from mar_st.spaces import rung_report
from mar_st.spaces.alignment import SpaceRun
from mar_st.spaces.options import AlignSettings
from mar_st.spaces.records import MANIFEST, card, claim, summary
from mar_st.spaces.retention import JudgedTasks, load_tasks
from mar_st.spaces.rung_effort import graph_of
from mar_st.spaces.rungs import (
    FULL_RUNG,
    LOOKUP_RUNG,
    copied,
    cut_to_layers,
    default_rung,
    kept_layers,
    parse_ladder,
    source_side,
    trainable,
)
from mar_st.spaces.space import Space, SpaceError, open_inputs
from mar_st.spaces.students import given_encoder, saved_student, student
from mar_st.teachers import ModelTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mar_st.evaluation.tasks import TaskData
    from mar_st.recipes.schema import Side
    from mar_st.spaces.rungs import Choice, Embeddings, Rung

REPORT_FILE, FIGURE_FILE = "ladder.json", "ladder.png"

#: Learning rate of the rungs. In a trial with two layers, 140 steps and the rates 5e-4, 1e-3 and 2e-3, the
#: rung came nearer to its teacher with each higher rate.
LEARNING_RATE = 1e-3


@dataclass(frozen=True)
class Ladder:
    """Rungs of a ladder, and the tasks on which they are measured.

    Attributes:
        rungs: List such as `lookup,1,2,4,full`.
        layers: Which of the teacher's (or the given student's) layers a rung takes.
        embeddings: Token embeddings of rungs that do not start with the encoder's first layer:
            `context-means`, each token's mean hidden state over the texts (see `mar_st.model.context_means`),
            or `copied`, those of the encoder.
        bigrams: Maximum number of pairs of adjacent tokens that get vectors of their own in such rungs (see
            `mar_st.modules.bigrams`), with `context-means`; 0: none.
        default: The rung that becomes `query`; default the one with two layers, else the largest.
        evaluate: Folders of tasks in the Hub layout.
        split: Split of their qrels.
    """

    rungs: str
    layers: Choice = "last"
    embeddings: Embeddings = "context-means"
    bigrams: int = 0
    default: str | None = None
    evaluate: tuple[str, ...] = ()
    split: str = "test"


def align_ladder(
    teacher: str,
    out: str | Path,
    ladder: Ladder,
    *,
    queries: str | Path | None = None,
    texts: str | Path | None = None,
    student: str | None = None,
    refine: str | None = None,
    store: str | Path | None = None,
    options: AlignSettings | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train query encoders of several sizes for the space of a teacher, and measure them.

    If the teacher is a model, a rung of N layers takes the teacher's own last layers and embeddings, pooled
    as the teacher pools. If `student` is given, it takes the layers of that. Otherwise it is a new encoder.
    `full` is a copy of the teacher. `lookup` sums vectors of n-grams from a regression on the teacher's
    vectors of the queries (of the documents, if there are no queries). All learn from the same texts and the
    same stored vectors. A call that was killed resumes with the rung and the step where it stopped; finished
    rungs are kept. If the ladder in `out` differs only in the tasks, it is measured again, not trained.

    Args:
        teacher: See `open_teacher`.
        out: Folder of the result: one MAR with the rungs as `query` (the default one) and `query-NAME`, and
            the teacher as its document route if it is a model. `OUT.run` holds unfinished work.
        ladder: The rungs and what they are measured on.
        queries: See `align_space`.
        texts: See `align_space`.
        student: See `align_space`; the rungs take its layers.
        refine: See `align_space`; rungs with layers are refined.
        store: See `align_space`.
        options: See `align_space`; `learning_rate` applies to every rung.
        say: Receives one line per phase, and the table at the end.

    Returns:
        The content of `OUT/space.json`. `OUT/ladder.json` holds the measurements.

    Raises:
        MarError: The ladder is invalid, a file or model is missing, `out` holds other content, or another
            process is writing it.
    """
    options = options or AlignSettings()
    rungs = parse_ladder(ladder.rungs)
    default = default_rung(rungs, ladder.default)
    tasks = load_tasks(ladder.evaluate, ladder.split)
    opened, query_texts, documents = open_inputs(teacher, out, queries, texts, store, options)
    run = LadderRun(
        teacher, opened, Path(out), query_texts, documents, student, refine, options, say,
        ladder=ladder, rungs=rungs, default=default, tasks=tasks,
    )  # fmt: skip
    with alone(run.work, SpaceError):
        return run.do()


def _training_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that the weights of the rungs depend on."""
    return {name: value for name, value in settings.items() if name != "evaluate"}


@dataclass(kw_only=True)
class LadderRun(SpaceRun):
    """One call of `align_ladder`.

    Attributes:
        ladder: The requested ladder.
        rungs: The rungs, from small to large.
        default: The rung that becomes `query`.
        tasks: Tasks to measure on.
        side: Side of the teacher whose layers the rungs take; `None` for new or given encoders.
        means: Mean hidden states of the encoder whose layers the rungs take, once they are computed.
    """

    ladder: Ladder
    rungs: tuple[Rung, ...]
    default: Rung
    tasks: list[TaskData]
    side: Side | None = field(default=None, init=False)
    means: HiddenMeans | None = field(default=None, init=False)

    def do(self) -> dict[str, Any]:
        """Run all phases."""
        if any(rung.trained for rung in self.rungs):
            need_packages("accelerate", extra="train", purpose="Training")
        self.side = self._checked_side()
        self._stage(self._rate())  # bad options are refused before the teacher is asked
        settings = self._settings()
        if (trained := self._with_other_tasks(settings)) is not None:
            return self._measured_again(trained, settings)
        if (kept := self._finished(settings)) is not None:
            return kept
        self.digest = self._document_space()
        train = self._split()
        space = self._space()
        judged = JudgedTasks.of(self.tasks, space, self.options.seed)
        claim(self.work, _training_settings(settings))
        # From large to small: the costliest and best rung is available first.
        for rung in reversed(self.rungs):
            self._rung(rung, space, train)
        part = self._assembled(space)
        report = self._measured(space, judged, part)
        agreed = {row["route"]: row["agreement"] for row in report["rungs"].values()}
        manifest = self._manifest(space, agreed, settings)
        lines = rung_report.table_lines(report)
        write_json(part / REPORT_FILE, report)
        rung_report.plot(report, part / FIGURE_FILE)
        figures = ["```text", *lines, "```", ""]
        text = card(self.out.name, part, manifest, whole=self._whole, extra=figures)
        (part / "README.md").write_text(text, encoding="utf-8")
        self._move(part, manifest)
        for line in lines:
            self.say(line)
        return manifest

    def _settings(self) -> dict[str, Any]:
        tasks = {task.task.name: task.digest for task in self.tasks}
        ladder: dict[str, Any] = {
            "rungs": [rung.name for rung in self.rungs],
            "default": self.default.name,
            "layers": self.ladder.layers,
            "embeddings": self.ladder.embeddings,
        }
        if self.ladder.bigrams:
            ladder["bigrams"] = self.ladder.bigrams
        return {**super()._settings(), "ladder": ladder, "evaluate": tasks}

    def _checked_side(self) -> Side | None:
        """Return the side of the teacher whose layers the rungs take.

        Raises:
            SpaceError: A copy is requested of a teacher that is not a model, or it has too few layers.
        """
        model = self.teacher.model if isinstance(self.teacher, ModelTeacher) else None
        if model is None and any(rung.name == FULL_RUNG for rung in self.rungs):
            raise SpaceError(
                f"'{FULL_RUNG}' is a copy of the teacher's model, but the teacher {self.spec} provides only "
                f"vectors. Leave '{FULL_RUNG}' out of --ladder."
            )
        most = max((rung.layers for rung in self.rungs if rung.trained), default=0)
        return None if model is None or self.student is not None else source_side(model, most)

    def _rate(self) -> float:
        """Return the learning rate of the rungs with layers."""
        return self.options.learning_rate or LEARNING_RATE

    def _documents_prompt(self) -> str:
        """Return the rungs' prompt for documents: the teacher's if they take its layers, else none."""
        if self.side is None or not isinstance(self.teacher, ModelTeacher):
            return ""
        return self.teacher.asks["document"].prompt

    # -- one rung --

    def _rung(self, rung: Rung, space: Space, train: Mapping[Side, list[str]]) -> None:
        """Train a rung, unless it is finished."""

        def trained(folder: Path) -> MAR:
            model = self._untrained(rung, space, train)
            if not rung.trained:
                return model
            return self._align(model, space, train, folder, self._rate(), self._documents_prompt())

        model = self._phase(self.work / f"rung-{rung.name}", trained)
        if self.refine is not None and rung.trained:
            rate = self._rate()
            self._phase(self._folder(rung), lambda folder: self._refine(space, model, folder, rate))

    def _folder(self, rung: Rung) -> Path:
        """Return the folder of the finished rung."""
        refined = self.refine is not None and rung.trained
        return self.work / f"rung-{rung.name}{'-refined' if refined else ''}"

    def _untrained(self, rung: Rung, space: Space, train: Mapping[Side, list[str]]) -> MAR:
        """Return the encoder that a rung starts from."""
        options = self.options
        set_seed(options.seed)
        modules: list[Any]
        if rung.name == LOOKUP_RUNG:
            role: Side = "query" if train["query"] else "document"
            modules = [fit_lookup(train[role], np.asarray(space.vectors(train[role], role)))]
        elif rung.name == FULL_RUNG:
            modules = self._copy("query", space)
        elif self.side is not None:
            modules = self._copy(self.side, space)
            self._cut(modules, rung, train)
            trainable(modules, max_length=options.max_length, dropout=options.dropout)
        elif self.student is not None:
            modules = given_encoder(self.student, max_length=options.max_length, dropout=options.dropout)
            self._cut(modules, rung, train)
        else:
            modules = self._small(train, rung.layers)
        return student(
            modules, space.dim, prompt=self._prompt(), similarity=space.similarity, seed=options.seed
        )

    def _cut(self, modules: list[Any], rung: Rung, train: Mapping[Side, list[str]]) -> None:
        """Cut an encoder to the layers of a rung, in place."""
        layers = kept_layers(modules, rung.layers, self.ladder.layers)
        if layers[0] and self.ladder.embeddings == "context-means":
            self._average(modules, train)
        cut_to_layers(modules, layers, self.means)

    def _average(self, modules: list[Any], train: Mapping[Side, list[str]]) -> None:
        """Average the hidden states below all rungs over the texts, once."""
        if self.means is not None:
            return
        role: Side = "query" if train["query"] else "document"
        prompt = self._prompt() if role == "query" else self._documents_prompt()
        texts = [prompt + train[role][row] for row in sample(len(train[role]), self.options.seed)]
        firsts = [
            kept_layers(modules, rung.layers, self.ladder.layers)[0] for rung in self.rungs if rung.trained
        ]
        self.say(f"hidden states of {len(texts)} texts are averaged for the embeddings of the rungs")
        try:
            self.means = HiddenMeans.of(
                modules[0],
                [layer for layer in firsts if layer],
                texts,
                pairs=self.ladder.bigrams,
                max_length=self.options.max_length,
            )
        except ContextMeansError as error:
            raise SpaceError(f"{error} On the command line: --ladder-embeddings copied.") from error

    def _copy(self, side: Side, space: Space) -> list[Any]:
        assert isinstance(self.teacher, ModelTeacher)  # noqa: S101 -- `_checked_side` saw to it
        return copied(route(self.teacher.model, side), space.dim)

    # -- all rungs --

    def _with_other_tasks(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of a finished ladder whose settings differ only in the tasks."""
        try:
            manifest: dict[str, Any] = read_json(self.out / MANIFEST)
            recorded = manifest["settings"]
            same = _training_settings(recorded) == _training_settings(settings)
        except (OSError, JsonError, KeyError, TypeError, AttributeError):
            return None
        return manifest if same and recorded != settings else None

    def _measured_again(self, manifest: dict[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
        """Measure a finished ladder on other tasks; its weights stay as they are."""
        self.say(f"{self.out}: finished before, measured again on the tasks of this call")
        before = read_json(self.out / REPORT_FILE) if (self.out / REPORT_FILE).is_file() else None
        self._split()
        space = self._space()
        report = self._measured(space, JudgedTasks.of(self.tasks, space, self.options.seed), self.out)
        lines = rung_report.table_lines(report)
        # No call asks for the tasks "unfinished", so one that was killed here measures again.
        write_json(self.out / MANIFEST, manifest | {"settings": dict(settings) | {"evaluate": "unfinished"}})
        write_json(self.out / REPORT_FILE, report)
        rung_report.plot(report, self.out / FIGURE_FILE)
        card_file = self.out / "README.md"
        if before is not None and card_file.is_file():  # the rest of a card may have been edited
            text = card_file.read_text(encoding="utf-8")
            write_text(card_file, text.replace("\n".join(rung_report.table_lines(before)), "\n".join(lines)))
        manifest = manifest | {"settings": dict(settings)}
        write_json(self.out / MANIFEST, manifest)
        refresh_digests(self.out, lambda name: name in (MANIFEST, REPORT_FILE, FIGURE_FILE))
        for line in lines:
            self.say(line)
        return manifest

    def _assembled(self, space: Space) -> Path:
        """Write all rungs into one folder beside the result; returns the folder."""
        part = self._saved(space, saved_student(self._folder(self.default) / "model"))
        for rung in self.rungs:
            if rung != self.default:
                model = saved_student(self._folder(rung) / "model")
                add_query_encoder(part, list(model.route_modules("query")), self._route(rung))
            for phase in dict.fromkeys((f"rung-{rung.name}", self._folder(rung).name)):
                self._keep_records(phase, part)
        return part

    def _route(self, rung: Rung) -> str:
        return "query" if rung == self.default else f"query-{rung.name}"

    def _measured(self, space: Space, judged: JudgedTasks, part: Path) -> dict[str, Any]:
        """Measure every rung and return the content of `ladder.json`."""
        texts = self._timed()
        rows: dict[str, Any] = {}
        with graph_of([documents.numpy() for documents in judged.documents]) as graph:
            for rung in self.rungs:
                name = self._route(rung)
                model = MAR.from_pretrained(part, routes="query", query=name)
                agreed = self._report(space, model, self._documents_prompt())
                self.say(f"{name}: {summary(agreed)}")
                queries = judged.queries(model)
                rows[rung.name] = {
                    "route": name,
                    "tasks": judged.report(queries) if judged.tasks else {},
                    "agreement": agreed,
                    "effort": None if graph is None else graph.effort(queries),
                    **rung_report.speed(model.to("cpu"), texts),
                    **rung_report.parameters(model),
                    "mib": rung_report.mebibytes(part, name),
                }
            effort = None if graph is None else graph.about(judged.taught)
        return {
            "format": 1,
            "default": self.default.name,
            "method": rung_report.method(),
            "effort": effort,
            "rungs": rows,
        }

    def _timed(self) -> list[str]:
        """Return the texts for timing: queries of the tasks, else held-out or other texts."""
        task_queries = [text for task in self.tasks for text in task.queries.values()]
        texts: Sequence[str] = task_queries or self.held["query"] or self.queries or self.documents
        return list(texts[:128])
