"""Training a query encoder for a document space: align, refine, compare, write."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError
from transformers import set_seed

from mar_st.data import Source, column_texts, numbered, read_triples
from mar_st.files import move_folder, refuse_link, write_digests
from mar_st.files.locks import alone
from mar_st.files.packages import need_packages
from mar_st.losses import AsymInfoNCELoss
from mar_st.model.digest import SPACE_FILE, model_digest, space_of
from mar_st.model.encoders import check_source
from mar_st.model.native_gte import fetch
from mar_st.model.tokenizers import forget_lengths
from mar_st.recipes.schema import AlignStage, Data, JointStage
from mar_st.spaces.agreement import agreement
from mar_st.spaces.options import AlignSettings
from mar_st.spaces.records import FORMAT, MANIFEST, card, claim, digest, summary
from mar_st.spaces.space import Space, SpaceError, open_inputs
from mar_st.spaces.students import (
    DONE_FILE,
    given_encoder,
    save_student,
    saved_student,
    small_encoder,
    student,
    with_documents,
)
from mar_st.stages.align import align_to
from mar_st.stages.columns import labelled, read_columns
from mar_st.stages.encoders import mixed_with_start
from mar_st.stages.trainer import METRICS_FILE, StageSettings, fit
from mar_st.teachers import EndpointTeacher, FolderTeacher, ModelTeacher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sentence_transformers.base.modules.module import Module

    from mar_st.model.mar import MAR
    from mar_st.recipes.schema import Side
    from mar_st.teachers import Teacher


def align_space(
    teacher: str,
    out: str | Path,
    *,
    queries: str | Path | None = None,
    texts: str | Path | None = None,
    student: str | None = None,
    refine: str | None = None,
    store: str | Path | None = None,
    options: AlignSettings | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a query encoder for the space of a teacher; a call that was killed resumes where it stopped.

    Args:
        teacher: See `open_teacher`.
        out: Folder of the result: a MAR with the teacher as its document route, or, if the teacher is not
            a local model, with only a query route. `OUT.run` holds unfinished work.
        queries: File of queries (JSONL with `text` or `query`, or one per line).
        texts: File of documents (JSONL with `text`, optionally `title` and `_id`); default for a folder of
            vectors: its own texts.
        student: Folder or Hub name of the query encoder; default a new small one.
        refine: Labelled triples, see `mar_st.data.read_triples`.
        store: Folder of the teacher's vectors; default `$MAR_STORE`, else beside `out`.
        options: All other settings.
        say: Receives one line per phase.

    Returns:
        The content of `OUT/space.json`: the space, the settings and the agreement on held-out texts.

    Raises:
        MarError: A file, a model or vectors are missing, `out` holds something else, or is being written.
    """
    options = options or AlignSettings()
    opened, query_texts, documents = open_inputs(teacher, out, queries, texts, store, options)
    run = SpaceRun(teacher, opened, Path(out), query_texts, documents, student, refine, options, say)
    with alone(run.work, SpaceError):
        return run.do()


@dataclass
class SpaceRun:
    """One call of `align_space`: its inputs, and the steps that a ladder shares.

    Attributes:
        spec: The teacher's name.
        teacher: The teacher.
        out: Folder of the result; `OUT.run` holds unfinished work.
        queries: Queries.
        documents: Documents.
        student: Folder or Hub name of the query encoder.
        refine: Labelled triples.
        options: The settings.
        say: Receives one line per phase.
        held: Held-out texts by role; `_split` sets them.
        digest: Digest of the teacher's document space, if known.
    """

    spec: str
    teacher: Teacher
    out: Path
    queries: list[str]
    documents: list[str]
    student: str | None
    refine: str | None
    options: AlignSettings
    say: Callable[[str], None]
    held: dict[Side, list[str]] = field(default_factory=dict)
    digest: str | None = None

    def do(self) -> dict[str, Any]:
        """Run all phases."""
        need_packages("accelerate", extra="train", purpose="Training")
        rate = self.options.learning_rate or (1e-3 if self.student is None else 1e-4)
        self._stage(rate)  # bad options are refused before the teacher is asked
        settings = self._settings()
        if (kept := self._finished(settings)) is not None:
            return kept
        self.digest = self._document_space()
        train = self._split()
        space = self._space()
        claim(self.work, settings)

        def align(folder: Path) -> MAR:
            return self._align(self._new(space, train), space, train, folder, rate)

        model = self._phase(self.work / "align", align)
        report = {"aligned": self._report(space, model)}
        self.say(f"aligned: {summary(report['aligned'])}")
        if self.refine is not None:
            model = self._phase(self.work / "refine", lambda f: self._refine(space, model, f, rate))
            report["refined"] = self._report(space, model)
            self.say(f"refined: {summary(report['refined'])}")
        manifest = self._manifest(space, report, settings)
        part = self._saved(space, model)
        for phase in ("align", "refine"):
            self._keep_records(phase, part)
        text = card(self.out.name, part, manifest, whole=self._whole)
        (part / "README.md").write_text(text, encoding="utf-8")
        self._move(part, manifest)
        return manifest

    @property
    def _whole(self) -> bool:
        """Return True if the result includes the teacher's document encoder."""
        return isinstance(self.teacher, ModelTeacher) and not self.options.query_only

    @property
    def work(self) -> Path:
        """Return the folder of unfinished work."""
        return self.out.with_name(f"{self.out.name}.run")

    def _finished(self, settings: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the manifest of an existing result with the same settings.

        Raises:
            SpaceError: The folder is a link, or holds something else or a result of other settings.
        """
        if (self.out / MANIFEST).is_file():
            manifest: dict[str, Any] = json.loads((self.out / MANIFEST).read_text(encoding="utf-8"))
            if manifest["settings"] == settings:
                self.say(f"{self.out}: finished before, kept")
                return manifest
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise SpaceError(
                f"{self.out} exists and is not the result of this command with these settings; choose "
                "another --out or delete it."
            )
        refuse_link(self.out, SpaceError)
        return None

    def _manifest(
        self, space: Space, agreed: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the content of `space.json`."""
        return {
            "format": FORMAT,
            "teacher": {role: self.teacher.identity(role) for role in ("query", "document")},
            "full_dim": space.full,
            "dim": space.dim,
            "normalised": space.unit,
            "similarity": space.similarity,
            "agreement": dict(agreed),
            "settings": dict(settings),
        }

    def _settings(self) -> dict[str, Any]:
        """Return everything that the result depends on, as JSON."""
        if self.student is not None:
            check_source(self.student, what="student")
        content = {
            "teacher": self.spec,
            "teacher_identity": {role: self.teacher.identity(role) for role in ("query", "document")},
            "student": None if self.student is None else [self.student, model_digest(self.student)],
            "queries": digest(self.queries),
            "texts": digest(self.documents),
            "refine": None,
            "options": self.options.to_json(),
        }
        if self.refine is not None:
            triples = [(t.query, *t.positives, "", *t.negatives) for t in read_triples(self.refine)]
            content["refine"] = digest([text for triple in triples for text in triple])
        settings: dict[str, Any] = json.loads(json.dumps(content))
        return settings

    def _split(self) -> dict[Side, list[str]]:
        """Return the texts for training, and set `held`."""
        train: dict[Side, list[str]] = {}
        texts: dict[Side, list[str]] = {"query": self.queries, "document": self.documents}
        for role, whole in texts.items():
            number = min(self.options.held_out, len(whole) // 10)
            kept = set(random.Random(self.options.seed).sample(range(len(whole)), number))
            self.held[role] = [whole[row] for row in sorted(kept)]
            train[role] = [text for row, text in enumerate(whole) if row not in kept]
        return train

    def _space(self) -> Space:
        self.say(f"teacher: {len(self.queries)} queries, {len(self.documents)} documents")
        if isinstance(self.teacher, EndpointTeacher) and not self.teacher.local:
            self.say(f"texts whose vectors are not there yet are sent to {self.teacher.base_url}")
        texts: dict[Side, list[str]] = {"query": self.queries, "document": self.documents}
        return Space.of(self.teacher, texts, self.options.dim)

    def _new(self, space: Space, train: Mapping[Side, list[str]]) -> MAR:
        """Return the student that training starts from."""
        options = self.options
        set_seed(options.seed)
        if self.student is not None:
            modules = given_encoder(self.student, max_length=options.max_length, dropout=options.dropout)
        else:
            modules = self._small(train, options.layers)
        return student(
            modules, space.dim, prompt=self._prompt(), similarity=space.similarity, seed=options.seed
        )

    def _small(self, train: Mapping[Side, list[str]], layers: int) -> list[Module]:
        options = self.options
        return small_encoder(
            [*train["query"], *train["document"]],
            layers=layers, width=options.width, vocabulary=options.vocabulary, max_length=options.max_length,
        )  # fmt: skip

    def _align(
        self,
        model: MAR,
        space: Space,
        train: Mapping[Side, list[str]],
        folder: Path,
        rate: float,
        document_prompt: str = "",
    ) -> MAR:
        """Train a student towards the space, in place."""
        entries: dict[Side, str] = {"query": "queries", "document": "texts"}
        sources = [
            Source(Data(name=name, path="-", form="texts", role=role), texts=train[role])
            for role, name in entries.items()
            if train[role]
        ]
        prompts = {"query": self._prompt(), "": document_prompt}
        align_to(model, lambda _: space, sources, self._stage(rate), self._stage_settings(folder), prompts)
        return model

    def _stage(self, rate: float) -> AlignStage:
        options = self.options
        try:
            return AlignStage(
                stage="align", name="align", batches="mixed",
                epochs=options.epochs, batch_size=options.batch_size, mini_batch_size=options.mini_batch_size,
                learning_rate=rate, temperature=options.temperature, length_groups=options.length_groups,
                contrastive_weight=options.contrastive_weight, mse_weight=options.mse_weight,
                cosine_weight=options.cosine_weight,
            )  # fmt: skip
        except ValidationError as error:
            problems = "; ".join(
                f"{item['loc'][0] if item['loc'] else 'options'}: {item['msg']}" for item in error.errors()
            )
            raise SpaceError(problems) from error

    def _refine(self, space: Space, model: MAR, folder: Path, rate: float) -> MAR:
        """Train an aligned student on labelled triples, in place."""
        options = self.options
        triples = read_triples(str(self.refine))
        negatives = options.refine_negatives
        if negatives is None:
            negatives = int((triples.negatives > 0).all())
        entry = Data(name="refine", path=str(self.refine), negatives=negatives)
        columns = read_columns(Source(entry, triples), options.seed)
        names = [name for name in columns.column_names if name != "query"]
        texts, places = numbered(*(column_texts(columns, name) for name in names))
        # The documents stay in the columns, unread, so that no two rows of a batch share one. The first row
        # of a label is that of the query's own vector, which this loss does not read.
        rows = np.stack([places[0], *places], axis=1)
        data = {"refine": labelled(columns.data.table, rows, space.documents(texts))}
        stage = JointStage(
            stage="joint", name="refine", freeze="document",
            epochs=options.refine_epochs, batch_size=options.refine_batch_size,
            learning_rate=options.refine_learning_rate or rate / 5,
            temperature=options.refine_temperature, mini_batch_size=options.mini_batch_size,
            length_groups=options.length_groups, start_share=options.refine_start_share,
        )  # fmt: skip
        loss = AsymInfoNCELoss(
            model,
            temperature=stage.temperature,
            gather_across_devices=True,
            mini_batch_size=stage.mini_batch_size,
        )
        prompt = {"refine": {"query": self._prompt()}} if self._prompt() else {}
        settings = self._stage_settings(folder)
        routes = {"refine": {"query": "query"}}
        with mixed_with_start(model, stage.start_share):
            fit(model, data, loss, stage, settings, prompts=prompt, router_mapping=routes)
        return model

    def _phase(self, folder: Path, train: Callable[[Path], MAR]) -> MAR:
        """Train a phase, or load its finished model."""
        if (folder / DONE_FILE).is_file():
            self.say(f"{folder.name}: finished before, kept")
            return saved_student(folder / "model")
        self.say(f"{folder.name}: {folder}")
        model = train(folder)
        save_student(model, folder, {"phase": folder.name})
        return model

    def _report(self, space: Space, model: MAR, document_prompt: str = "") -> dict[str, Any]:
        """Return the agreement of a student with the teacher on the held-out texts."""
        held = self.held
        encoded = {
            "query": model.encode_queries(held["query"]) if held["query"] else np.empty((0, space.dim)),
            "document": model.encode(held["document"], task="query", prompt=document_prompt)
            if held["document"] else np.empty((0, space.dim)),
        }  # fmt: skip
        taught = {role: np.asarray(space.vectors(held[role], role)) for role in held if held[role]}
        corpus = space.documents(self.documents) if self.documents else None
        place = {text: row for row, text in enumerate(self.documents)}
        own = [place[text] for text in held["document"]]
        return agreement(encoded, {str(k): v for k, v in taught.items()}, corpus, own, seed=self.options.seed)

    def _saved(self, space: Space, model: MAR) -> Path:
        """Write a student, and the teacher if it is a model, beside the result; return the folder."""
        result = model
        if isinstance(self.teacher, ModelTeacher) and self._whole:
            prompt = self.teacher.asks["document"].prompt
            result = with_documents(
                model, self.teacher.model, dim=space.dim, unit=space.unit, document_prompt=prompt
            )
        part = self.out.with_name(f"{self.out.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        forget_lengths(result)
        result.save_pretrained(str(part), create_model_card=False)
        if self.digest is not None:
            (part / SPACE_FILE).write_text(f"{self.digest}\n", encoding="utf-8")
        return part

    def _keep_records(self, phase: str, part: Path) -> None:
        """Keep the training records of a phase."""
        if (self.work / phase / METRICS_FILE).is_file():
            shutil.copy2(self.work / phase / METRICS_FILE, part / f"{phase}-{METRICS_FILE}")

    def _move(self, part: Path, manifest: Mapping[str, Any]) -> None:
        """Put the finished folder into place."""
        (part / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")
        write_digests(part)
        if self.out.is_dir():
            self.out.rmdir()  # empty
        move_folder(part, self.out)
        shutil.rmtree(self.work, ignore_errors=True)
        self.say(f"model: {self.out}")

    def _document_space(self) -> str | None:
        """Return the digest of the teacher's document space, so that its index accepts the result."""
        if isinstance(self.teacher, FolderTeacher):
            return self.teacher.space
        if not isinstance(self.teacher, ModelTeacher):
            return None
        return space_of(fetch(self.spec))

    def _prompt(self) -> str:
        if self.options.prompt is not None:
            return self.options.prompt
        return self.teacher.asks["query"].prompt if isinstance(self.teacher, ModelTeacher) else ""

    def _stage_settings(self, folder: Path) -> StageSettings:
        options = self.options
        return StageSettings(folder, options.seed, "bf16" if options.autocast else "fp32", options.save_steps)
