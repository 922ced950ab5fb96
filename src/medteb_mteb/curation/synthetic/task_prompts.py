"""The prompts that brainstorm tasks and write an example of one (BMRetriever, synthetic tasks), in our words.

The paper publishes the requests of its prompts, but not their full wording. The first prompt brainstorms
biomedical retrieval tasks: it shows two example tasks and asks for a statement of what query and documents
are, a wide range, and a list of about 20 strings. The second one asks for one example of a task, as JSON with
three keys under the constraints of the grid. The paper's answer is a bare list; ours is an object with one
key, since endpoints with a JSON mode return objects.
"""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.step import SEED
from medteb_mteb.curation.synthetic.answers import PAIR_KEYS
from medteb_mteb.curation.synthetic.forms import LANGUAGES
from medteb_mteb.curation.synthetic.grid import LENGTHS, Constraints, described

if TYPE_CHECKING:
    from medteb_mteb.curation.synthetic.forms import Language

#: Key of the list of tasks.
TASKS_KEY = "tasks"
#: Number of tasks requested per call.
TASKS_PER_CALL = 20

#: Two example tasks in the brainstorm prompt: to verify a claim, and to answer frequent questions.
EXAMPLE_TASKS = {one: prompt_text(__file__, f"example-tasks-{one}").splitlines() for one in LANGUAGES}
#: Fields that a call focuses on; calls with different fields give different tasks even at temperature 0.
_FIELDS = {one: prompt_text(__file__, f"fields-{one}").splitlines() for one in LANGUAGES}
_FIELDS_PER_CALL = 3

_BRAINSTORM, _EXAMPLE = (
    {
        one: (prompt_text(__file__, f"{name}-system-{one}").strip(), prompt_text(__file__, f"{name}-{one}"))
        for one in LANGUAGES
    }
    for name in ("tasks", "example")
)
#: Tokens of a word (English), and of a character (Chinese, the upper end for today's tokenizers).
_TOKENS_PER_UNIT: dict[Language, float] = {"zh": 1.0, "en": 1.4}
#: Tokens of the keys of an example and the JSON around it.
_OVERHEAD_TOKENS = 40
#: Tokens of a task sentence in an answer.
_TOKENS_PER_TASK = 40


def brainstorm_version(language: Language) -> str:
    """Return the digest (16 hex digits) of a brainstorm prompt without its number and fields."""
    return version_of(*_BRAINSTORM[language], TASKS_KEY, *EXAMPLE_TASKS[language], *_FIELDS[language])


def example_version(language: Language) -> str:
    """Return the digest (16 hex digits) of an example's prompt without its task and constraints."""
    return version_of(*_EXAMPLE[language], *PAIR_KEYS)


def brainstorm_prompt(call: int, language: Language) -> Prompt:
    """Return the prompt of one call for tasks; calls differ by their fields and by their variant.

    Args:
        call: Number of the call, from 0.
        language: Language of the tasks.
    """
    fields = list(_FIELDS[language])
    random.Random(f"{SEED}\0{call * _FIELDS_PER_CALL // len(fields)}").shuffle(fields)
    start = call * _FIELDS_PER_CALL % len(fields)
    system, user = _BRAINSTORM[language]
    first, second = EXAMPLE_TASKS[language]
    text = user.format(
        count=TASKS_PER_CALL,
        first=first,
        second=second,
        fields=("、" if language == "zh" else "; ").join(fields[start : start + _FIELDS_PER_CALL]),
        key=TASKS_KEY,
    )
    tokens = 10 + _TOKENS_PER_TASK * TASKS_PER_CALL
    schema = object_schema({TASKS_KEY: {"type": "array", "items": {"type": "string"}}})
    return Prompt(str(call), system, text, schema, tokens, variant=str(call))


def example_prompt(
    key: str, task: str, constraints: Constraints, language: Language, *, variant: str
) -> Prompt:
    """Return the prompt for one example of a task.

    Args:
        key: Key of the prompt.
        task: The task sentence; it is shown between delimiters that it cannot contain.
        constraints: Constraints of the example.
        language: Language of the example.
        variant: Variant of the prompt, to get another example under the same constraints.
    """
    shown = defused(task)
    system, user = _EXAMPLE[language]
    query, positive, negative = PAIR_KEYS
    text = user.format(
        word=delimiter(hashlib.sha256(f"example\0{shown}".encode()).digest(), (shown,)),
        task=shown,
        query=query,
        positive=positive,
        negative=negative,
        **described(constraints, language),
    )
    lengths = LENGTHS[language]
    units = 2 * lengths[constraints.num_words][1] + lengths[constraints.query_length][1]
    tokens = _OVERHEAD_TOKENS + round(units * _TOKENS_PER_UNIT[language])
    schema = object_schema({name: {"type": "string"} for name in PAIR_KEYS})
    return Prompt(key, system, text, schema, tokens, variant=variant)
