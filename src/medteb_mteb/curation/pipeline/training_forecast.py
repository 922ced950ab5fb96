"""Forecast of the cost of the steps that have an LLM write texts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from medteb_mteb.curation.pipeline import training_steps as steps  # noqa: TC001 - read by register
from medteb_mteb.curation.pipeline.forecast import Charge, View, Volume, charged, expected
from medteb_mteb.curation.pipeline.resolve import tests_of

if TYPE_CHECKING:
    from medteb_mteb.curation.llm import LLM, Cost, Prompt


def _charge(llm: LLM, cost: Cost) -> list[Charge]:
    return [Charge(llm.name, cost.requests, cost.tokens_in, cost.tokens_out, cost.cost, cost.known)]


def _like(llm: LLM, prompt: Prompt, requests: int) -> list[Charge]:
    """Return the cost of a number of requests like the given one, for texts that do not exist yet."""
    from medteb_mteb.curation.llm.budget import tokens_of

    tokens_in = requests * (tokens_of(prompt.system) + tokens_of(prompt.user))
    tokens_out = requests * prompt.answer_tokens
    return [Charge(llm.name, requests, tokens_in, tokens_out, llm.cost(tokens_in, tokens_out), exact=False)]


def _text(volume: Volume) -> str:
    """A text of the mean length: a Chinese character is counted as a token."""
    return "字" * math.ceil(volume.tokens / max(1, volume.items))


@expected.register
def _(step: steps.SynthesizeQueries, view: View) -> Volume:
    documents = view.volume("documents").items
    return Volume(min(documents, step.sample or documents) * step.per_document, exact=False)


@expected.register
def _(step: steps.SynthesizeTasks, _view: View) -> Volume:
    return Volume(step.tasks * step.pairs_per_task, exact=False)


@expected.register
def _(_step: steps.Triples, view: View) -> Volume:
    return Volume(view.volume("queries").items, exact=False)


@expected.register
def _(_step: steps.RoundTrip, view: View) -> Volume:
    return Volume(view.volume("pairs").items, exact=False)


@expected.register
def _(_step: steps.Pairs, view: View) -> Volume:
    return Volume(
        sum(one.items for key in ("queries", "documents") if key in view.paths for one in view.volumes(key)),
        exact=False,
    )


@charged.register
def _(step: steps.Sts, view: View) -> list[Charge]:
    from medteb_mteb.curation.files.records import Text
    from medteb_mteb.curation.sts import Entry, estimate
    from medteb_mteb.curation.sts.prompt import render
    from medteb_mteb.curation.sts.select import Candidate

    llm = step.writer(view.build.pipeline)
    if view.ready:
        out = view.build.folder(step)
        found = estimate(
            view.path("dictionary"),
            view.path("queries"),
            out,
            llm,
            step.settings(),
            journal=view.build.answers,
            retry_failed=view.retry_failed,
        )
        return _charge(llm, found.cost)
    queries = view.volume("queries")
    query = _text(queries)
    like = Candidate(Text("x", query), Entry("字" * 4, "词" * 4), query)
    return _like(llm, render(like, step.tolerance), min(queries.items, step.limit or queries.items))


@charged.register
def _(step: steps.Triples, view: View) -> list[Charge]:
    from medteb_mteb.curation.training import estimate_triples, read_held_out
    from medteb_mteb.curation.training.prompt import render

    llm = step.writer(view.build.pipeline)
    if view.ready:
        cost = estimate_triples(
            view.path("queries"),
            view.path("documents"),
            view.path("pools"),
            view.build.folder(step),
            llm,
            step.settings(),
            held_out=read_held_out(tests_of(step, view.paths), step.threshold),
            journal=view.build.answers,
            retry_failed=view.retry_failed,
        )
        return _charge(llm, cost)
    pools, document = view.volume("pools"), _text(view.volume("documents"))
    each = min(step.depth, math.ceil(pools.items / max(1, pools.queries)))
    shown = min(step.documents_per_prompt, each, max(1, step.prompt_tokens // (len(document) + 1)))
    # Every prompt may carry a control document.
    like = render("x 0", _text(view.volume("queries")), [document] * (shown + 1))
    return _like(llm, like, pools.queries * math.ceil(each / max(1, shown)))


@charged.register
def _(step: steps.SynthesizeQueries, view: View) -> list[Charge]:
    from medteb_mteb.curation.synthetic import estimate_queries
    from medteb_mteb.curation.synthetic.forms import draw_forms
    from medteb_mteb.curation.synthetic.query_prompt import query_prompt

    llm, settings = step.writer(view.build.pipeline), step.settings()
    if view.ready:
        cost = estimate_queries(
            view.path("documents"),
            view.build.folder(step),
            llm,
            settings,
            journal=view.build.answers,
            retry_failed=view.retry_failed,
        )
        return _charge(llm, cost)
    documents = view.volume("documents")
    forms = draw_forms(settings.forms, step.per_document, "")
    like = query_prompt("x", _text(documents)[: step.longest], forms, step.language)
    return _like(llm, like, min(documents.items, step.sample or documents.items))


@charged.register
def _(step: steps.SynthesizeTasks, view: View) -> list[Charge]:
    from dataclasses import replace

    from medteb_mteb.curation.synthetic import estimate_tasks
    from medteb_mteb.curation.synthetic.tasks import TASKS

    llm, settings, out = step.writer(view.build.pipeline), step.settings(), view.build.folder(step)
    known = (out / TASKS).is_file()
    if step.tasks_from is not None and view.ready:
        settings, known = replace(settings, tasks_from=view.path("tasks_from")), True
    cost = estimate_tasks(out, llm, settings, journal=view.build.answers, retry_failed=view.retry_failed)
    return [replace(one, exact=known) for one in _charge(llm, cost)]
