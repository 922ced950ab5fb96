"""The prompt that requests queries for a document.

BMRetriever generated its synthetic queries with gpt-3.5-turbo-1106 and does not publish the prompt; this one
is ours.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from medteb_mteb.curation.judge.injection import defused, delimiter
from medteb_mteb.curation.llm.client import Prompt, object_schema, prompt_text, version_of
from medteb_mteb.curation.synthetic.forms import FORMS, LANGUAGES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from medteb_mteb.curation.synthetic.forms import Language

#: Key of the answer's list.
QUERIES_KEY = "queries"

_SYSTEM = {one: prompt_text(__file__, f"queries-system-{one}").strip() for one in LANGUAGES}
_TEMPLATE = {one: prompt_text(__file__, f"queries-{one}") for one in LANGUAGES}
_LINE: dict[Language, str] = {"zh": "第{number}条：{form}。", "en": "Query {number}: {form}."}
_PLACEHOLDER: dict[Language, str] = {"zh": "<第{number}条查询>", "en": "<query {number}>"}
#: Tokens of the longest requested query and the JSON around it.
_TOKENS_PER_QUERY = 100


def query_version(language: Language) -> str:
    """Return the digest (16 hex digits) of the prompt without its document and choice of forms."""
    forms = [FORMS[name].described[language] for name in sorted(FORMS)]
    texts = (one[language] for one in (_SYSTEM, _TEMPLATE, _LINE, _PLACEHOLDER))
    return version_of(*texts, QUERIES_KEY, *forms)


def query_prompt(key: str, text: str, forms: Sequence[str], language: Language) -> Prompt:
    """Return the prompt for one document.

    Args:
        key: Key of the prompt.
        text: The document; it is shown between delimiters that it cannot contain.
        forms: Form of each query, see `FORMS`.
        language: Language of the queries.
    """
    shown = defused(text)
    identity = hashlib.sha256("\0".join(("queries", language, *forms, shown)).encode()).digest()
    lines = [
        _LINE[language].format(number=number, form=FORMS[form].described[language])
        for number, form in enumerate(forms, 1)
    ]
    # An LLM imitates the words of an example, so the example holds placeholders only.
    places = ", ".join(f'"{_PLACEHOLDER[language].format(number=n + 1)}"' for n in range(min(2, len(forms))))
    user = _TEMPLATE[language].format(
        count=len(forms),
        forms="\n".join(lines),
        word=delimiter(identity, (shown,)),
        text=shown,
        key=QUERIES_KEY,
        example=f'{{"{QUERIES_KEY}": [{places}{", ..." if len(forms) > 2 else ""}]}}',
    )
    schema = object_schema({QUERIES_KEY: {"type": "array", "items": {"type": "string"}}})
    tokens = 10 + _TOKENS_PER_QUERY * len(forms)
    return Prompt(key, _SYSTEM[language], user, schema, tokens, texts=(text,))
