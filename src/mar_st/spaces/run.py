"""Training a query encoder for a document space: align, refine, compare, write."""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError
from transformers import set_seed

from mar_st.data import Source, column_texts, numbered, read_triples
from mar_st.encode.space import SPACE_FILE, space_of
from mar_st.encoders import check_source
from mar_st.lineage import model_digest
from mar_st.losses import StoredInfoNCELoss
from mar_st.native_gte import fetch
from mar_st.schema import AlignStage, Data, JointStage
from mar_st.spaces.agreement import agreement
from mar_st.spaces.options import Options
from mar_st.spaces.space import Space, SpaceError, open_teacher
from mar_st.spaces.students import (
    DONE,
    given_encoder,
    save_student,
    saved_student,
    small_encoder,
    student,
    with_documents,
)
from mar_st.stages.align import align_to
from mar_st.stages.labels import labelled
from mar_st.stages.trainer import Settings, fit, read_columns
from mar_st.store import store_root, text_keys
from mar_st.teachers import EndpointTeacher, FolderTeacher, ModelTeacher
from mar_st.texts import read_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mar_st.model import MAR
    from mar_st.schema import Side
    from mar_st.teachers import Teacher

MANIFEST = "space.json"
FORMAT = 1


def align_space(
    teacher: str,
    out: str | Path,
    *,
    queries: str | Path | None = None,
    texts: str | Path | None = None,
    student: str | None = None,
    refine: str | None = None,
    store: str | Path | None = None,
    options: Options | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train a query encoder for the space of a teacher; a call that was killed goes on where it stopped.

    Args:
        teacher: See `open_teacher`.
        out: Folder of the result: a MAR with the teacher as its document route, or, of a teacher that is no
            model at hand, with a query route alone. `OUT.run` holds what is unfinished.
        queries: File of queries (JSONL with `text` or `query`, or one per line).
        texts: File of documents (JSONL with `text`, maybe `title` and `_id`); default for a folder of
            vectors: its own.
        student: Folder or Hub name of the query encoder; default a new small one.
        refine: Labelled triples, see `mar_st.data.read_triples`.
        store: Where the teacher's vectors are kept; default `$MAR_STORE`, else beside `out`.
        options: Everything else.
        say: Receives one line per phase.

    Returns:
        The content of `OUT/space.json`: the space, the settings and the agreement on held-out texts.

    Raises:
        MarError: A file or model is missing, vectors are missing, or `out` holds something else.
    """
    options = options or Options()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise SpaceError("mar align runs in one process; start it without torchrun or accelerate launch.")
    root = Path(store) if store else store_root(Path(out))
    opened = open_teacher(
        teacher,
        root,
        corpus=Path(texts) if texts else None,
        prompts={"query": options.prompt or "", "document": options.document_prompt},
        autocast=options.precision == "bf16",
    )
    asked = list(read_texts(Path(queries))) if queries else []
    if isinstance(opened, FolderTeacher) and (texts is None or opened.by_id):
        documents = list(dict.fromkeys(opened.texts))
    else:
        documents = list(read_texts(Path(texts))) if texts else []
    if not asked and not documents:
        raise SpaceError("There is nothing to align on: give --queries, --texts, or both.")
    run = _Run(teacher, opened, Path(out), asked, documents, student, refine, options, say)
    return run.do()


@dataclass
class _Run:
    """One call of `align_space`."""

    spec: str
    teacher: Teacher
    out: Path
    queries: list[str]
    documents: list[str]
    student: str | None
    refine: str | None
    options: Options
    say: Callable[[str], None]
    held: dict[Side, list[str]] = field(default_factory=dict)
    digest: str | None = None

    def do(self) -> dict[str, Any]:
        """All phases."""
        self._stage()  # bad options are refused before the teacher is asked
        settings = self._settings()
        work = self.out.with_name(f"{self.out.name}.run")
        if (self.out / MANIFEST).is_file():
            manifest: dict[str, Any] = json.loads((self.out / MANIFEST).read_text(encoding="utf-8"))
            if manifest["settings"] == settings:
                self.say(f"{self.out}: finished before, kept")
                return manifest
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            raise SpaceError(f"{self.out} holds something else; choose another --out or delete it.")
        self.digest = self._document_space()
        train = self._split()
        space = self._space()
        _claim(work, settings)
        model = self._phase(work / "align", lambda folder: self._align(space, train, folder))
        report = {"aligned": self._report(space, model)}
        self.say(f"aligned: {_line(report['aligned'])}")
        if self.refine is not None:
            model = self._phase(work / "refine", lambda folder: self._refine(space, model, folder))
            report["refined"] = self._report(space, model)
            self.say(f"refined: {_line(report['refined'])}")
        manifest = {
            "format": FORMAT,
            "teacher": {role: self.teacher.identity(role) for role in ("query", "document")},
            "full_dim": space.full,
            "dim": space.dim,
            "normalised": space.unit,
            "similarity": space.similarity,
            "agreement": report,
            "settings": settings,
        }
        self._write(space, model, manifest, work)
        self.say(f"model: {self.out}")
        return manifest

    def _settings(self) -> dict[str, Any]:
        """Everything that the result depends on, as JSON."""
        if self.student is not None:
            check_source(self.student, what="student")
        content = {
            "teacher": self.spec,
            "teacher_identity": {role: self.teacher.identity(role) for role in ("query", "document")},
            "student": None if self.student is None else [self.student, model_digest(self.student)],
            "queries": _digest(self.queries),
            "texts": _digest(self.documents),
            "refine": None,
            "options": {name: value for name, value in asdict(self.options).items() if name != "save_steps"},
        }
        if self.refine is not None:
            triples = [(t.query, *t.positives, "", *t.negatives) for t in read_triples(self.refine)]
            content["refine"] = _digest([text for triple in triples for text in triple])
        found: dict[str, Any] = json.loads(json.dumps(content))
        return found

    def _split(self) -> dict[Side, list[str]]:
        """Texts for training; sets `held`."""
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

    def _align(self, space: Space, train: Mapping[Side, list[str]], folder: Path) -> MAR:
        options = self.options
        set_seed(options.seed)
        if self.student is not None:
            modules = given_encoder(self.student, max_length=options.max_length)
        else:
            modules = small_encoder(
                [*train["query"], *train["document"]],
                layers=options.layers, width=options.width, vocabulary=options.vocabulary,
                max_length=options.max_length,
            )  # fmt: skip
        model = student(
            modules, space.dim, prompt=self._prompt(), similarity=space.similarity, seed=options.seed
        )
        entries: dict[Side, str] = {"query": "queries", "document": "texts"}
        sources = [
            Source(Data(name=name, path="-", form="texts", role=role), texts=train[role])
            for role, name in entries.items()
            if train[role]
        ]
        settings = self._stage_settings(folder)
        align_to(model, lambda _: space, sources, self._stage(), settings, {"query": self._prompt()})
        return model

    def _stage(self) -> AlignStage:
        options = self.options
        try:
            return AlignStage(
                stage="align", name="align", batches="mixed",
                epochs=options.epochs, batch_size=options.batch_size, mini_batch_size=options.mini_batch_size,
                learning_rate=self._learning_rate(), temperature=options.temperature,
                contrastive_weight=options.contrastive_weight, mse_weight=options.mse_weight,
                cosine_weight=options.cosine_weight,
            )  # fmt: skip
        except ValidationError as error:
            problems = "; ".join(
                f"{item['loc'][0] if item['loc'] else 'options'}: {item['msg']}" for item in error.errors()
            )
            raise SpaceError(problems) from error

    def _refine(self, space: Space, model: MAR, folder: Path) -> MAR:
        options = self.options
        triples = read_triples(str(self.refine))
        negatives = options.refine_negatives
        if negatives is None:
            negatives = int((triples.negatives > 0).all())
        entry = Data(name="refine", path=str(self.refine), negatives=negatives)
        columns = read_columns(Source(entry, triples), options.seed)
        names = [name for name in columns.column_names if name != "query"]
        texts, places = numbered(*(column_texts(columns, name) for name in names))
        # The documents stay in the columns, unread, so that no two rows of a batch share one.
        data = {"refine": labelled(columns.data.table, np.stack(places, axis=1), space.documents(texts))}
        rate = options.refine_learning_rate or self._learning_rate() / 5
        stage = JointStage(
            stage="joint", name="refine", freeze="document",
            epochs=options.refine_epochs, batch_size=options.refine_batch_size, learning_rate=rate,
            temperature=options.refine_temperature, mini_batch_size=options.mini_batch_size,
        )  # fmt: skip
        loss = StoredInfoNCELoss(
            model,
            temperature=stage.temperature,
            gather_across_devices=True,
            mini_batch_size=stage.mini_batch_size,
        )
        prompt = {"refine": {"query": self._prompt()}} if self._prompt() else {}
        settings = self._stage_settings(folder)
        fit(model, data, loss, stage, settings, prompts=prompt, router_mapping={"refine": {"query": "query"}})
        return model

    def _phase(self, folder: Path, train: Callable[[Path], MAR]) -> MAR:
        """Train, or load what was trained before."""
        if (folder / DONE).is_file():
            self.say(f"{folder.name}: finished before, kept")
            return saved_student(folder / "model")
        self.say(f"{folder.name}: {folder}")
        model = train(folder)
        save_student(model, folder, {"phase": folder.name})
        return model

    def _report(self, space: Space, model: MAR) -> dict[str, Any]:
        held = self.held
        encoded = {
            "query": model.encode_queries(held["query"]) if held["query"] else np.empty((0, space.dim)),
            "document": model.encode(held["document"], task="query", prompt="") if held["document"] else
            np.empty((0, space.dim)),
        }  # fmt: skip
        taught = {role: np.asarray(space.vectors(held[role], role)) for role in held if held[role]}
        corpus = space.documents(self.documents) if self.documents else None
        place = {text: row for row, text in enumerate(self.documents)}
        own = [place[text] for text in held["document"]]
        return agreement(encoded, {str(k): v for k, v in taught.items()}, corpus, own, seed=self.options.seed)

    def _write(self, space: Space, model: MAR, manifest: dict[str, Any], work: Path) -> None:
        result = model
        if isinstance(self.teacher, ModelTeacher) and not self.options.query_only:
            prompt = self.teacher.asks["document"].prompt
            result = with_documents(
                model, self.teacher.model, dim=space.dim, unit=space.unit, document_prompt=prompt
            )
        part = self.out.with_name(f"{self.out.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        result.save_pretrained(str(part), create_model_card=False)
        for phase in ("align", "refine"):
            for name in ("metrics.jsonl", "loss.png"):
                if (work / phase / name).is_file():
                    shutil.copy2(work / phase / name, part / f"{phase}-{name}")
        if self.digest is not None:
            (part / SPACE_FILE).write_text(f"{self.digest}\n", encoding="utf-8")
        (part / "README.md").write_text(_card(self.out.name, manifest, result.routes), encoding="utf-8")
        (part / MANIFEST).write_text(json.dumps(manifest, indent=2, ensure_ascii=False), encoding="utf-8")
        if self.out.is_dir():
            self.out.rmdir()  # empty
        part.rename(self.out)
        shutil.rmtree(work, ignore_errors=True)

    def _document_space(self) -> str | None:
        """Digest of the space of the teacher's documents, so that their index takes the result."""
        if isinstance(self.teacher, FolderTeacher):
            return self.teacher.space
        if not isinstance(self.teacher, ModelTeacher):
            return None
        return space_of(fetch(self.spec))

    def _prompt(self) -> str:
        if self.options.prompt is not None:
            return self.options.prompt
        return self.teacher.asks["query"].prompt if isinstance(self.teacher, ModelTeacher) else ""

    def _learning_rate(self) -> float:
        return self.options.learning_rate or (1e-3 if self.student is None else 1e-4)

    def _stage_settings(self, folder: Path) -> Settings:
        return Settings(folder, self.options.seed, self.options.precision, self.options.save_steps)


def _claim(work: Path, settings: dict[str, Any]) -> None:
    """Take the folder of the unfinished run, or go on with the one that is there."""
    marker = work / "settings.json"
    if marker.is_file() and json.loads(marker.read_text(encoding="utf-8")) != settings:
        if any(work.glob("*/checkpoints/checkpoint-*")) or any(work.glob(f"*/{DONE}")):
            raise SpaceError(
                f"{work} holds an unfinished alignment with other texts or settings. Finish it with those, "
                "delete the folder, or choose another --out."
            )
        shutil.rmtree(work)  # nothing was trained yet
    work.mkdir(parents=True, exist_ok=True)
    part = work / "settings.part"
    part.write_text(json.dumps(settings, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(marker)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256(text_keys(texts).tobytes()).hexdigest()


def _line(report: Mapping[str, Any]) -> str:
    names = {"cosine_query": "cosine of queries", "cosine_document": "cosine of documents",
             "overlap_at_10": "overlap@10"}  # fmt: skip
    return ", ".join(f"{text} {report[name]:.3f}" for name, text in names.items() if name in report) or (
        "too few texts to hold some out"
    )


def _card(name: str, manifest: dict[str, Any], routes: Sequence[str]) -> str:
    last = list(manifest["agreement"].items())[-1]
    whole = "document" in routes
    documents = (
        "documents = model.encode_document(texts)"
        if whole
        else "# documents: the vectors that are stored already"
    )
    cut = manifest["dim"] < manifest["full_dim"]
    return "\n".join(
        [
            "---", "library_name: sentence-transformers", "pipeline_tag: sentence-similarity",
            f"tags: [mar, {'asymmetric' if whole else 'query-encoder'}]", "---", "",
            f"# {name}", "",
            f"A query encoder for the document space of `{manifest['settings']['teacher']}`: "
            f"{manifest['dim']} "
            + (f"of {manifest['full_dim']} " if cut else "")
            + f"dimensions, compared by {manifest['similarity']}.", "",
            "```python", "from sentence_transformers import SentenceTransformer", "",
            f'model = SentenceTransformer("{name}")  # the folder', "queries = model.encode_query(texts)",
            documents, "```", "", f"On held-out texts ({last[0]}): {_line(last[1])}. Details: `{MANIFEST}`.",
            "",
        ]
    )  # fmt: skip
