"""Answers of LLMs, for the tolerant reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from medteb_mteb.curation.llm.prompt import Rejected
from medteb_mteb.curation.llm.tolerant import Members, json_object, json_values, spoken
from tests.fuzz.engine import Target

if TYPE_CHECKING:
    from pathlib import Path


def prepare(_: Path) -> Target:
    """Set up the target: answers of LLM judges."""

    def check(data: bytes) -> str:
        text = data.decode("utf-8", "replace")
        for cut in (False, True):
            spoken(text, cut=cut)
        said = spoken(text)
        values = json_values(said)
        for value in values:
            assert isinstance(value.content, Members | list)
            # A JSON string that holds JSON is taken out of its quotation marks first.
            wide = "｛" in text or "｝" in text  # braces of Chinese keyboards are taken for those of JSON
            assert value.repaired in said or wide or said[:1] == '"'
        members = json_object(text)
        assert isinstance(members, dict)
        try:  # plain JSON is read as it stands, unless a server's tokens or thoughts are in it
            plain = json.loads(text, strict=False) if said == text.strip() else None
        except (ValueError, RecursionError):
            plain = None
        if isinstance(plain, dict):
            assert json.dumps(members) == json.dumps(plain)  # NaN, too
        return f"{len(values)} values, {len(members)} members"

    texts = [
        '{"grades": {"1": 2, "2": 0}}',
        '<think>hm {"a": 1}</think>\n```json\n{"grades": [{"id": 1, "grade": "A级"}]}\n```',
        "好的：{“文档1”：“A”，“文档2”：“B”，}", '**{"a": 1,}** and more prose [1]',
        '{"a": "x"y"z", "b": [1, 2,]}',
        '<|channel|>analysis<|message|>x<|end|><|channel|>final<|constrain|>json<|message|>{"a": null}',
        '"{\\"a\\": 1}"',
        "{'a': True, 'b': None} // comment", '{"a": {"b": {"c": [[[1]]]}}}', "｛“a”：1｝",
        "◁think▷x◁/think▷{\"k\": 1e999}",
        '[{"id": "d1", "label": 3}, {"id": "d2", "label": 1}]', '{"a": 1, "a": 2}', '{"a": 1} {"a": 1}',
    ]  # fmt: skip
    words = ("<think>", "</think>", "[/THINK]", "```json", "```", "“", "”", "：", "，", "**", "`", "{", "}",
    "[[", "]]", "<|im_end|>",
             "\ufeff", "\u200b", "None", "True", "//", "/*", "\\\"", "'", "{'a':", "<channel|>", ",,", ":",
             "\\u00")  # fmt: skip
    return Target(
        [text.encode() for text in texts], check, (Rejected,), words=tuple(word.encode() for word in words)
    )
