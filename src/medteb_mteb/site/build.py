"""Writes the pages of a site: an index, and a page per task, system, pair of systems and query."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from mar_st.errors import MarError
from mar_st.files import finished_folder
from mar_st.options import read_yaml, say
from medteb_mteb.compare.analysis import AVERAGE, Analysis
from medteb_mteb.report.page import probability
from medteb_mteb.site.board import STEPS, Board
from medteb_mteb.site.systems import systems_of
from medteb_mteb.site.tasks import MOST_QUERIES, TaskView

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from medteb_mteb.compare.read import Results
    from medteb_mteb.site.board import Gap, Pair
    from medteb_mteb.site.systems import About, System

_HERE = Path(__file__).parent
#: Files that every site has; the first one marks a folder as a site.
_FILES = ("site.js", "site.css", "vendor")
#: Facts that the index draws scores against.
_COSTS = ("latency", "online", "size")
#: Longest name of a page; file systems take 255 bytes, with the suffix.
_LONGEST = 100
#: Characters of a document that a list shows.
SNIPPET = 60


@dataclass(frozen=True)
class Outcome:
    """A finished site: its folder, the number of pages and bytes, and tasks whose texts are not shown."""

    out: str
    pages: int
    bytes: int
    without_texts: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        return asdict(self)


def write_site(
    results: Results,
    out: Path,
    *,
    about: Mapping[str, About] | None = None,
    texts: bool = False,
    title: str | None = None,
) -> Outcome:
    """Write results as a folder of pages that opens from a file and from any host.

    Args:
        results: The results.
        out: Folder to write. An earlier site is replaced.
        about: Further facts about systems, by name.
        texts: Show texts of any licence; without it, those of open licences only.
        title: Title of the site.

    Raises:
        MarError: `out` is not a folder, or holds something other than a site.
    """
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / _FILES[0]).is_file())):
        raise MarError(f"{out} exists and is not a site; give another folder, or delete it.")
    with finished_folder(out) as part:
        site = _Site(results, part, about or {}, texts, title)
        site.write()
    files = [path for path in out.rglob("*") if path.is_file()]
    closed = [task.name for task in site.tasks.values() if task.folder is not None and not task.shown]
    return Outcome(str(out), site.pages, sum(path.stat().st_size for path in files), closed)


class _Site:
    """The pages of one site.

    Attributes:
        pages: Number of pages written.
    """

    def __init__(
        self, results: Results, out: Path, about: Mapping[str, About], texts: bool, title: str | None
    ) -> None:
        self.results, self.out, self.pages = results, out, 0
        analysis = Analysis(results)
        self.board = Board(analysis)
        self.bounds = analysis.bounds
        self.systems = {system.name: system for system in systems_of(results, about)}
        self.tasks = {name: TaskView(name, analysis, texts) for name in results.table.tasks}
        self._paths: dict[tuple[str, ...], str] = {}
        self._taken: set[str] = set()
        self.with_page: set[tuple[str, str]] = set()
        self.env = _environment()
        self.env.globals.update(
            site=self, AVERAGE=AVERAGE, STEPS=STEPS, t=_text, word=_word, title=title,
            version=version("medteb"),
        )  # fmt: skip

    def write(self) -> None:
        """Write all pages and files."""
        say(f"comparing {len(self.systems)} systems on {len(self.tasks)} tasks")
        for name in _FILES:
            source = _HERE / name
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, self.out / name)
        strings = {
            language: {key: one[language] for key, one in _strings().items()} for language in ("en", "zh")
        }
        (self.out / "texts.js").write_text(
            f"const TEXTS = {json.dumps(strings, ensure_ascii=False)};\n", encoding="utf-8"
        )
        pairs = [self.board.pair(*names) for names in self.board.pairs]
        queries = self._queries(pairs)
        self.with_page = {(task, query) for task, some in queries.items() for query in some}
        systems = list(self.systems.values())
        costs = [key for key in _COSTS if sum(bool(getattr(system, key)) for system in systems) > 1]
        scored = Counter(task for _, task in self.board.cells)
        # Not all systems may have all tasks: then the costs stand beside the task that most of them have.
        measure = max((AVERAGE, *self.tasks), key=lambda task: scored[task])
        self._page("index", (), systems=systems, costs=costs, measure=measure)
        for task in self.tasks.values():
            self._page("task", ("task", task.name), task=task, queries=queries[task.name])
        for system in self.systems.values():
            self._page("system", ("system", system.name), system=system)
        say(f"writing pages of {len(pairs)} pairs and {len(self.with_page)} queries")
        for pair in pairs:
            self._page("pair", ("pair", pair.first, pair.second), pair=pair)
        for task_name, some in queries.items():
            self._query_pages(self.tasks[task_name], some)

    def _queries(self, pairs: Sequence[Pair]) -> dict[str, list[str]]:
        """Return the queries of each task that have a page."""
        named = {(gap.task, gap.query) for pair in pairs for gap in (*pair.better, *pair.worse)}
        return {
            name: [
                query
                for place, query in enumerate(task.queries)
                if place < MOST_QUERIES or (name, query) in named
            ]
            for name, task in self.tasks.items()
        }

    def _query_pages(self, task: TaskView, queries: Sequence[str]) -> None:
        neighbours = zip(queries, (None, *queries), (*queries[1:], None), strict=False)
        for query, previous, following in neighbours:
            rankings = task.rankings(query)
            documents = task.documents(query, rankings)
            numbers = {one.id: number for number, one in enumerate(documents, 1)}
            self._page(
                "query", ("query", task.name, query), task=task, query=query, rankings=rankings,
                documents=documents, numbers=numbers, previous=previous, following=following,
            )  # fmt: skip

    def _page(self, template: str, key: tuple[str, ...], **values: Any) -> None:
        path = self.path(*key)
        root = "../" * path.count("/")
        text = self.env.get_template(f"{template}.html").render(root=root, **values)
        target = self.out / path
        target.parent.mkdir(exist_ok=True)
        # HTML needs no end tags here; without them the pages of a large board are a fifth smaller.
        target.write_text(re.sub(r"</(?:td|th|tr)>", "", text), encoding="utf-8")
        self.pages += 1

    def path(self, *key: str) -> str:
        """Return the path of a page in the folder by its kind and names; `index.html` without a key.

        Names hold only letters, digits, `-`, `_` and `.`; a digest tells those apart that would be equal.
        """
        if not key:
            return "index.html"
        if key not in self._paths:
            kind, *names = key
            plain = "--".join(re.sub(r"[^A-Za-z0-9._-]+", "_", name) for name in names).lstrip(".")
            if len(plain) > _LONGEST or not plain or f"{kind}/{plain.lower()}" in self._taken:
                digest = hashlib.sha256("\0".join(names).encode()).hexdigest()[:10]
                plain = f"{plain[:_LONGEST]}-{digest}"
            self._taken.add(f"{kind}/{plain.lower()}")
            self._paths[key] = f"{kind}/{plain}.html"
        return self._paths[key]

    def pairs_of(self, name: str) -> list[tuple[str, str, str]]:
        """Return the pairs of a system that have a page: the other one, first and second."""
        return [
            (second if name == first else first, first, second)
            for first, second in self.board.pairs
            if name in (first, second)
        ]

    def trained(self, system: System) -> str:
        """Return `trained` if a system was trained on one of the tasks, `zero-shot`, or `not-known`."""
        if system.trained is None:
            return "not-known"
        return "trained" if system.trained & self.tasks.keys() else "zero-shot"

    def gap_rows(self, gaps: Sequence[Gap]) -> list[tuple[Gap, str, bool]]:
        """Return queries with their texts, and whether they have a page."""
        return [
            (gap, self.tasks[gap.task].text(gap.query), (gap.task, gap.query) in self.with_page)
            for gap in gaps
        ]

    def command(self, system: System) -> str:
        """Return the command that reproduces the scores of a system."""
        entry = self.board.analysis.entry
        return system.command([task for name, task in self.tasks.items() if entry(system.name, name)])

    def versions(self, system: str) -> list[str]:
        """Return the versions of mteb that measured a system."""
        entries = self.results.table.entries
        return sorted({one.version for one in entries if one.model == system and one.version})


@cache
def _strings() -> dict[str, dict[str, str]]:
    strings: dict[str, dict[str, str]] = read_yaml(_HERE / "texts.yaml")
    return strings


def _word(key: str, **values: Any) -> str:
    """Return a string in English."""
    return _strings()[key]["en"].format(**values)


def _text(key: str, **values: Any) -> Markup:
    """Return a string in English, marked up so that the page can translate it."""
    given = Markup(' data-values="{}"').format(json.dumps(values)) if values else ""
    return Markup('<span data-text="{}"{}>{}</span>').format(key, given, _word(key, **values))


def _lang(text: str) -> Markup:
    """Return the attribute that says which language a text of the data is in, as far as its script tells."""
    return Markup(' lang="zh-CN"') if re.search(r"[\u3400-\u9fff]", text) else Markup(' lang="en"')


def _snippet(text: str) -> str:
    return text if len(text) <= SNIPPET else f"{text[:SNIPPET]}…"


def _score(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def _breakable(name: str) -> Markup:
    """Return a name that may be broken after `/` and between its words."""
    return Markup("<wbr>").join(re.split(r"(?<=[A-Za-z0-9])(?=[A-Z][a-z])|(?<=[/_.])(?=.)", name))


def _lines(text: str) -> Markup:
    return Markup("<br>").join(escape(line) for line in text.splitlines())


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        lang=_lang,
        snippet=_snippet,
        score=_score,
        number=_number,
        lines=_lines,
        probability=probability,
        breakable=_breakable,
    )
    return environment
