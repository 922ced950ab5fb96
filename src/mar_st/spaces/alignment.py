"""Training query encoders for a document space: align, measure, write."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers import set_seed

from mar_st.data.corpus import read_texts
from mar_st.data.sequences import Triples, digests
from mar_st.data.training import Source, read_source
from mar_st.errors import MarError
from mar_st.files import (
    finished_folder,
    finished_record,
    load_package,
    locked,
    read_record,
    replace_folder,
    write_json,
    write_text,
)
from mar_st.lookup.fit import fit_lookup
from mar_st.model.context_means import cut_encoder, sample
from mar_st.model.digest import SPACE_FILE, model_digest, space_of
from mar_st.model.encoders import check_source
from mar_st.model.family import add_query_encoder
from mar_st.model.mar import MAR
from mar_st.model.native_gte import fetch
from mar_st.model.tokenizers import forget_lengths
from mar_st.modules.arrangement import route
from mar_st.modules.layout import loading_call
from mar_st.recipes.schema import AlignStage, Data, Side
from mar_st.spaces import AlignSettings, measure
from mar_st.spaces.encoders import (
    FULL_RUNG,
    LOOKUP_RUNG,
    Rung,
    copied,
    default_rung,
    given_encoder,
    kept_layers,
    parse_ladder,
    small_encoder,
    source_side,
    student,
    trainable,
    with_documents,
)
from mar_st.spaces.space import Space, open_teacher
from mar_st.stages.align import align_to
from mar_st.stages.corpus import train_on_corpus
from mar_st.stages.trainer import METRICS_FILE, StageSettings
from mar_st.teachers.endpoint import EndpointTeacher
from mar_st.teachers.model import ModelTeacher
from mar_st.teachers.store import FolderTeacher, store_root, text_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mar_st.data.sequences import Triple


MANIFEST, REPORT_FILE = "space.json", "ladder.json"

#: Batches whose texts are sorted by length together: texts of all lengths would be mostly padding.
LENGTH_GROUPS = 16

#: Learning rate of new students and rungs. In a trial with two layers, 140 steps and the rates 5e-4, 1e-3 and
#: 2e-3, the rung came nearer to its teacher with each higher rate. Given students have learnt already.
LEARNING_RATE, GIVEN_RATE = 1e-3, 1e-4

#: Learning rates (layers, lookup), temperature and passes with labelled pairs: chosen on Chinese development
#: sets (docs/studies/bge.md).
PAIRS_RATE, PAIRS_LOOKUP_RATE, PAIRS_TEMPERATURE, PAIRS_EPOCHS = 1e-4, 3e-4, 0.02, 2.0

#: Settings on which the weights do not depend.
_NOT_TRAINED = {"out", "evaluate"}

#: Most queries, and documents, that are held out for the report; a tenth at most.
HELD_OUT = 200

#: Steps between checkpoints.
SAVE_STEPS = 200


def align(settings: AlignSettings, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Train one query encoder, or a ladder of several sizes, for the space of a teacher.

    The vectors of the documents do not change. If the teacher is a model, a rung of N layers takes the
    teacher's own layers and embeddings, pooled as the teacher pools; with `student`, it takes the layers of
    that; otherwise it is a new encoder. `full` is a copy of the teacher. `lookup` sums vectors of n-grams
    from a regression on the teacher's vectors of the queries (of the documents, if there are no queries). All
    learn from the same texts and the same stored vectors. With `pairs` all but `full` are then trained
    further with `CorpusLoss`. A call that was killed resumes with the rung and the step where it stopped. A
    finished one is only measured again.

    Args:
        settings: The teacher, the texts and all other settings. The result is a MAR with the teacher as its
            document route, or, if the teacher is not a local model, with only query routes; `OUT.run` holds
            unfinished work.
        say: Receives one line per phase, and the table of the query encoders.

    Returns:
        The content of `OUT/space.json`: the space, the settings and the agreement on held-out texts.
        `OUT/ladder.json` holds all measurements.

    Raises:
        MarError: A file, a model or vectors are missing, `out` holds something else, or is being written.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise MarError("mar align runs in one process; start it without torchrun or accelerate launch.")
    run = _Run(settings, say)
    with locked(run.work):
        manifest = run.do()
    shutil.rmtree(run.work, ignore_errors=True)
    return manifest


class _Run:
    """One call of `align`."""

    def __init__(self, settings: AlignSettings, say: Callable[[str], None]) -> None:
        self.settings, self.say = settings, say
        self.out, self.work = settings.out, settings.out.with_name(f"{settings.out.name}.run")
        self.ladder = settings.ladder is not None
        own = Rung(settings.layers, "student")
        self.rungs = parse_ladder(settings.ladder) if settings.ladder is not None else (own,)
        self.default = default_rung(self.rungs, settings.default_rung) if self.ladder else own
        if settings.pairs is not None or any(rung.trained for rung in self.rungs):
            load_package("accelerate", extra="train")
        self.tasks = measure.load_tasks(settings.evaluate)
        if settings.student is not None:
            check_source(settings.student, what="student")
        self.rate = settings.learning_rate or (
            GIVEN_RATE if settings.student is not None and not self.ladder else LEARNING_RATE
        )
        self.teacher = open_teacher(
            settings.teacher,
            store_root(self.out),
            prompts={"query": settings.prompt or "", "document": settings.document_prompt},
            autocast=settings.autocast,
        )
        self.texts: dict[Side, list[str]] = {
            "query": read_texts(settings.queries, table="queries") if settings.queries else [],
            "document": read_texts(settings.texts, table="corpus") if settings.texts else [],
        }
        self.train: dict[Side, list[str]] = {}
        self.held: dict[Side, list[str]] = {}
        for role, whole in self.texts.items():
            number = min(HELD_OUT, len(whole) // 10)
            kept = set(random.Random(settings.seed).sample(range(len(whole)), number))
            self.held[role] = [whole[row] for row in sorted(kept)]
            self.train[role] = [text for row, text in enumerate(whole) if row not in kept]
        self.pairs: Sequence[Triple] | None = None
        if settings.pairs is not None:
            self.pairs = read_source(Data(name="pairs", path=str(settings.pairs), instruction="")).triples
            asked = {triple.query for triple in self.pairs}
            self.held["query"] = [text for text in self.held["query"] if text not in asked]
        self.side = self._source_side() if self.ladder else None
        self.whole = self._model is not None and not settings.query_only  # with the teacher's documents

    def do(self) -> dict[str, Any]:
        """Run all phases."""
        recorded = self._recorded()
        if finished_record(self.out, MANIFEST, "settings", recorded) is not None:
            self.say(f"{self.out}: finished before, measured again")
            return self._described(self.out, recorded)
        self._claim(recorded)
        self.say(f"teacher: {len(self.texts['query'])} queries, {len(self.texts['document'])} documents")
        if isinstance(self.teacher, EndpointTeacher) and not self.teacher.local:
            self.say(f"texts whose vectors are not there yet are sent to {self.teacher.base_url}")
        for rung in reversed(self.rungs):  # the costliest and best rung is available first
            self._rung(rung)
        part = self._assembled()
        manifest = self._described(part, recorded)
        if self.out.is_dir():
            self.out.rmdir()  # empty
        replace_folder(part, self.out)
        self.say(f"model: {self.out}")
        return manifest

    # -- inputs --

    @property
    def _model(self) -> ModelTeacher | None:
        return self.teacher if isinstance(self.teacher, ModelTeacher) else None

    @cached_property
    def space(self) -> Space:
        """Return the space, after the teacher has encoded all texts."""
        return Space.of(self.teacher, self.texts, self.settings.dim)

    @property
    def _prompt(self) -> str:
        if self.settings.prompt is not None:
            return self.settings.prompt
        return self._model.prompts["query"] if self._model else ""

    @property
    def _documents_prompt(self) -> str:
        """Return the rungs' prompt for documents: the teacher's if they take its layers, else none."""
        return self._model.prompts["document"] if self._model and self.side is not None else ""

    def _source_side(self) -> Side | None:
        """Return the side of the teacher whose layers the rungs take; `None` for new or given encoders."""
        if self._model is None and any(rung.name == FULL_RUNG for rung in self.rungs):
            raise MarError(
                f"'{FULL_RUNG}' is a copy of the teacher's model, but the teacher {self.settings.teacher} "
                f"provides only vectors. Leave '{FULL_RUNG}' out of --ladder."
            )
        most = max((rung.layers for rung in self.rungs if rung.trained), default=0)
        if self._model is None or self.settings.student is not None:
            return None
        return source_side(self._model.model, most)

    def _recorded(self) -> dict[str, Any]:
        """Return everything that the weights depend on, as JSON."""
        settings = self.settings
        content = settings.model_dump(mode="json", exclude=_NOT_TRAINED)
        content |= {
            "teacher_identity": {role: self.teacher.identity(role) for role in self.texts},
            "texts": {
                role: hashlib.sha256(text_keys(texts).tobytes()).hexdigest()
                for role, texts in self.texts.items()
            },
        }
        if self.pairs is not None:
            content["pairs"] = hashlib.sha256(digests(Triples.of(self.pairs).texts).tobytes()).hexdigest()
        if settings.student is not None:
            content["student"] = [settings.student, model_digest(settings.student)]
        recorded: dict[str, Any] = json.loads(json.dumps(content))
        return recorded

    def _claim(self, recorded: dict[str, Any]) -> None:
        """Take the folder of unfinished work, or refuse trained weights of other settings in it."""
        marker = self.work / "settings.json"
        if read_record(marker) != recorded:
            if any(self.work.glob("*/checkpoints/checkpoint-*")) or any(self.work.glob("*/*/modules.json")):
                raise MarError(
                    f"{self.work} holds an unfinished alignment with other texts or settings. Finish it with "
                    "those, delete the folder, or choose another --out."
                )
            write_json(marker, recorded)

    # -- training --

    def _rung(self, rung: Rung) -> MAR:
        """Train a query encoder, or load it if it is finished."""
        folder = self.work / rung.name
        pairs = None if rung.name == FULL_RUNG else self.pairs
        if pairs is None:
            return self._kept(folder / "model", lambda: self._aligned(rung, folder))
        return self._kept(folder / "model", lambda: self._paired(rung, folder, pairs))

    def _kept(self, path: Path, make: Callable[[], MAR]) -> MAR:
        """Return the query encoder in a folder; if it is not there, it is made and saved."""
        if path.is_dir():
            self.say(f"{path}: finished before, kept")
            return MAR.from_pretrained(path, routes="query")
        self.say(str(path))
        model = make()
        forget_lengths(model)
        with finished_folder(path) as part:
            model.save_pretrained(str(part), create_model_card=False)
        return model

    def _aligned(self, rung: Rung, folder: Path) -> MAR:
        """Train a query encoder on texts."""
        model = self._untrained(rung)
        if not rung.trained:
            return model
        entries: dict[Side, str] = {"query": "queries", "document": "texts"}
        sources = [
            Source(Data(name=name, path="-", form="texts", role=role), texts=self.train[role])
            for role, name in entries.items()
            if self.train[role]
        ]
        stage, run = self._stage(self.rate, self.settings.temperature, self.settings.epochs, folder)
        prompts = {"query": self._prompt, "": self._documents_prompt}
        align_to(
            model,
            lambda texts, group: self.space.vectors(texts, group.role),
            sources,
            stage,
            run,
            prompts,
        )
        return model

    def _paired(self, rung: Rung, folder: Path, pairs: Sequence[Triple]) -> MAR:
        """Train a query encoder on texts, then on labelled pairs."""
        model = self._kept(folder / "aligned", lambda: self._aligned(rung, folder))
        rate = PAIRS_LOOKUP_RATE if rung.name == LOOKUP_RUNG else PAIRS_RATE
        stage, run = self._stage(rate, PAIRS_TEMPERATURE, PAIRS_EPOCHS, folder / "pairs")
        documents = self.train["document"]
        train_on_corpus(model, pairs, documents, self.space.vectors, stage, run, prompt=self._prompt)
        return model

    def _stage(
        self, rate: float, temperature: float, epochs: float, folder: Path
    ) -> tuple[AlignStage, StageSettings]:
        settings = self.settings
        stage = AlignStage(
            stage="align",
            name="align",
            batches="mixed",
            learning_rate=rate,
            epochs=epochs,
            batch_size=settings.batch_size,
            length_groups=LENGTH_GROUPS,
            temperature=temperature,
        )
        precision = "bf16" if settings.autocast else "fp32"
        return stage, StageSettings(folder, settings.seed, precision, SAVE_STEPS)

    def _untrained(self, rung: Rung) -> MAR:
        """Return the encoder that training starts from."""
        settings, space = self.settings, self.space
        set_seed(settings.seed)
        modules: list[Any]
        if rung.name == LOOKUP_RUNG:
            role: Side = "query" if self.train["query"] else "document"
            modules = [fit_lookup(self.train[role], np.asarray(space.vectors(self.train[role], role)))]
        elif rung.name == FULL_RUNG or self.side is not None:
            assert self._model is not None  # noqa: S101 -- `_source_side` saw to it
            side = "query" if rung.name == FULL_RUNG else self.side
            modules = copied(route(self._model.model, side or "query"), space.dim)
            if rung.name != FULL_RUNG:
                self._cut(modules, rung)
                trainable(modules, max_length=settings.max_length)
        elif settings.student is not None:
            modules = given_encoder(settings.student, max_length=settings.max_length)
            if self.ladder:
                self._cut(modules, rung)
        else:
            modules = small_encoder(
                [*self.train["query"], *self.train["document"]],
                layers=rung.layers,
                max_length=settings.max_length,
            )
        return student(
            modules, space.dim, prompt=self._prompt, similarity=space.similarity, seed=settings.seed
        )

    def _cut(self, modules: list[Any], rung: Rung) -> None:
        """Cut an encoder to the layers of a rung, in place; mean hidden states become the embeddings."""
        layers = kept_layers(modules, rung.layers)
        cut_encoder(
            modules,
            layers,
            self._averaged() if layers[0] else None,
            max_length=self.settings.max_length,
            autocast=self.settings.autocast,
        )

    def _averaged(self) -> list[str]:
        """Return the texts whose hidden states are averaged."""
        role: Side = "query" if self.train["query"] else "document"
        prompt = self._prompt if role == "query" else self._documents_prompt
        chosen = sample(len(self.train[role]), self.settings.seed)
        self.say(f"hidden states of {len(chosen)} texts are averaged for the embeddings of the rung")
        return [prompt + self.train[role][row] for row in chosen]

    # -- the result --

    def _route(self, rung: Rung) -> str:
        return "query" if rung == self.default else f"query-{rung.name}"

    def _assembled(self) -> Path:
        """Write all query encoders, and the teacher if it is a model, into one folder; return the folder."""
        space, part = self.space, self.work / "result"
        result = model = self._rung(self.default)
        if self._model is not None and self.whole:
            prompt = self._model.prompts["document"]
            result = with_documents(
                model, self._model.model, dim=space.dim, unit=space.unit, document_prompt=prompt
            )
        shutil.rmtree(part, ignore_errors=True)
        forget_lengths(result)
        result.save_pretrained(str(part), create_model_card=False)
        for rung in self.rungs:
            if rung != self.default:
                add_query_encoder(part, list(self._rung(rung).route_modules("query")), self._route(rung))
        for records in self.work.rglob(METRICS_FILE):
            name = "-".join(records.relative_to(self.work).parts)
            shutil.copy2(records, part / name)
        digest = self.teacher.space if isinstance(self.teacher, FolderTeacher) else None
        if self._model is not None:  # its index accepts the result
            digest = space_of(fetch(self.settings.teacher))
        if digest is not None:
            write_text(part / SPACE_FILE, f"{digest}\n")
        return part

    def _described(self, part: Path, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """Measure the query encoders in a folder and write its records; return the manifest."""
        space = self.space
        task_queries = [text for task in self.tasks for text in task.queries.values()]
        rows = measure.encoders(
            part,
            {rung.name: self._route(rung) for rung in self.rungs},
            space,
            self.tasks,
            self.held,
            prompts={"query": self._prompt, "document": self._documents_prompt},
            timed=task_queries or self.held["query"] or self.texts["query"] or self.texts["document"],
            seed=self.settings.seed,
        )
        report: dict[str, Any] = {"default": self.default.name, "method": measure.method(), "rungs": rows}
        agreed = {row["route"]: row["agreement"] for row in report["rungs"].values()}
        manifest = {
            "teacher": {role: self.teacher.identity(role) for role in self.texts},
            "full_dim": space.full,
            "dim": space.dim,
            "normalised": space.unit,
            "similarity": space.similarity,
            "agreement": agreed,
            "settings": dict(recorded),
        }
        lines = measure.table_lines(report)
        for line in lines:
            self.say(line)
        write_json(part / REPORT_FILE, report)
        loading = loading_call(self.out.name, part)
        card = measure.card(self.out.name, self.settings.teacher, manifest, lines, loading, whole=self.whole)
        write_text(part / "README.md", card)
        write_json(part / MANIFEST, manifest)
        return manifest
