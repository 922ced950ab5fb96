"""Reading JSON as LLMs write it: with thoughts, prose and Markdown around it, and with small mistakes in it.

Only the format is repaired. Incomplete values are ignored, and repeated keys are returned twice, so that the
caller can refuse them. Repairs are those of `json-repair`; objects that it closes, merges or overwrites on
its own are not accepted.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from medteb_mteb.curation.files.records import BuildError
from medteb_mteb.curation.llm.prompt import Rejected

__all__ = ["Members", "Value", "json_object", "json_values", "spoken"]

#: Ends of a model's thoughts: DeepSeek, Qwen, GLM, Seed and most others; Kimi; Mistral; Cohere; Gemma.
_THOUGHT_ENDS = re.compile(
    r"</(?:seed:)?(?:think|thinking|thoughts?|reasoning)>|◁/think▷|\[/THINK\]|<\|END_THINKING\|>|<channel\|>",
    re.IGNORECASE,
)
#: Starts of thoughts; also the channels of gpt-oss that are not its answer.
_THOUGHT_STARTS = re.compile(
    r"<(?:seed:)?(?:think|thinking|thoughts?|reasoning)(?:\s[^<>\n]{0,80})?>|◁think▷|\[THINK\]|<\|START_THINKING\|>|"
    r"<\|channel>|<\|channel\|>\s*(?:analysis|commentary)",
    re.IGNORECASE,
)
#: gpt-oss puts its answer into a channel of that name.
_FINAL_CHANNEL = re.compile(r"<\|channel\|>\s*final\s*(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>")
#: Starts of a text that begins with JSON. Runs are possessive: a long one must not be tried at each length.
_STARTS_WITH_JSON = re.compile(r"[\s`*\"]*+(?:json)?[\s`*]*+[{\[｛]", re.IGNORECASE)
#: Special tokens that a server has left in, such as <|im_end|> and <|begin_of_box|>.
_SPECIAL_TOKENS = re.compile(r"<\|[\w ]{1,40}\|>")
_ZERO_WIDTH = re.compile("[\ufeff\u200b-\u200d\u2060]")
#: Marks of bold and code around keys and values.
_MARKDOWN_MARKS = re.compile(r"(?<=[{\[,:：\s])(?:\*\*|`)|(?:\*\*|`)(?=\s*[}\],，:：])")
#: Chinese colons and commas between quotation marks.
_CHINESE_PUNCTUATION = (
    (re.compile(r"(?<=[\"'”])\s*：\s*(?=[\"'“{\[\w])"), ": "),
    (re.compile(r"(?<=[\"'”}\]])\s*[，、；]\s*(?=[\"'“{\[}])"), ", "),
)
_OPENING, _BRACES, _BRACKETS = re.compile(r"[{\[]"), re.compile(r"[{}]"), re.compile(r"[\[\]]")
#: Maximum length and nesting depth of a piece that is repaired.
_MAX_PIECE_LENGTH, _MAX_PIECE_DEPTH = 50_000, 50
#: Maximum number of brackets that turn out to be prose; after more, reading stops.
_MAX_PROSE_BRACKETS = 1000


class Members(list[tuple[str, Any]]):
    """Members of an object in their order; a dict would keep only the last of a repeated key."""


def spoken(content: str, *, cut: bool = False) -> str:
    """Return an answer without the model's reasoning and the server's special tokens.

    If there is only reasoning, it is the answer if it ends with JSON; what precedes other words is a draft.
    An answer that is `cut` off has to begin with JSON, unless the end of the reasoning is marked: many models
    do not mark its start, so that any other text may be reasoning.
    """
    text, marked = _ZERO_WIDTH.sub("", content), False
    if final := list(_FINAL_CHANNEL.finditer(text)):
        text, marked = text[final[-1].end() :], True
    if ends := list(_THOUGHT_ENDS.finditer(text)):
        after_thoughts = text[ends[-1].end() :]
        if cut or _SPECIAL_TOKENS.sub("", after_thoughts).strip():
            text, marked = after_thoughts, True
        else:
            text = _conclusion(text[: ends[-1].start()])
    if _THOUGHT_STARTS.search(text):
        text = "" if cut else _conclusion(_THOUGHT_STARTS.sub("", text))
    text = _SPECIAL_TOKENS.sub("\n", text).strip()
    return "" if cut and not marked and not _STARTS_WITH_JSON.match(text) else text


def _conclusion(thoughts: str) -> str:
    """Return thoughts if they end with JSON, else an empty text."""
    end = _SPECIAL_TOKENS.sub("", thoughts).rstrip(' \t\r\n`*"')
    return thoughts if end.endswith(("}", "]", "｝")) else ""


@dataclass(frozen=True, slots=True)
class Value:
    """A JSON value.

    Attributes:
        content: The value; its objects are `Members`.
        repaired: The text before the repair; empty if it was valid.
    """

    content: Any
    repaired: str = ""


def json_values(text: str) -> list[Value]:
    """Return all outermost objects and arrays of a text, unchanged or repaired.

    An object that does not end is left out with its content. A repair may put a value under a wrong key; if
    that matters, compare with the text of `Value.repaired`.
    """
    if text[:1] == '"' and text[-1:] == '"':
        with suppress(ValueError):  # JSON inside a JSON string
            text = str(json.loads(text))
    if "{" not in text:
        text = text.translate(str.maketrans("｛｝", "{}"))
    values: list[Value] = []
    ends: dict[int, tuple[int, int]] | None = None
    place = prose = 0
    while prose < _MAX_PROSE_BRACKETS and (start := _OPENING.search(text, place)):
        piece = ""
        try:
            value, place = _DECODER.raw_decode(text, start.start())
        except RecursionError:
            break
        except ValueError:
            ends = _ends(text) if ends is None else ends
            end = ends.get(start.start())
            if end is None:
                if start.group() == "{":
                    break
                place, prose = start.end(), prose + 1
                continue
            place, depth = end
            piece = text[start.start() : place]
            value = _repaired(piece) if depth <= _MAX_PIECE_DEPTH else None
            if value is None and start.group() == "[":
                place, prose = start.end(), prose + 1
                continue
        if value:
            values.append(Value(value, piece))
    return values


def json_object(content: str) -> dict[str, Any]:
    """Return the JSON object of an answer, without reasoning and text around it.

    Raises:
        Rejected: `no-json`: there is not exactly one object, a key occurs twice, or it is nested too deeply.
    """
    values = [value.content for value in json_values(spoken(content))]
    objects = [value for value in values if isinstance(value, Members)]
    try:
        if not objects or any(other != objects[0] for other in objects[1:]):
            raise Rejected("no-json")
        parsed: dict[str, Any] = _as_dict(objects[0])
    except RecursionError as error:  # nested hundreds of levels deep
        raise Rejected("no-json") from error
    return parsed


def _as_dict(value: Any) -> Any:
    if isinstance(value, Members):
        converted = {key: _as_dict(one) for key, one in value}
        if len(converted) != len(value):
            raise Rejected("no-json")
        return converted
    return [_as_dict(one) for one in value] if isinstance(value, list) else value


_DECODER = json.JSONDecoder(object_pairs_hook=Members, strict=False)


def _ends(text: str) -> dict[int, tuple[int, int]]:
    """Return the end and the nesting depth of each closed bracket by its start.

    Braces and brackets are counted apart, and quotation marks are ignored, because they may be wrong. One
    pass over the text: an answer of brackets alone must not take long.
    """
    ends: dict[int, tuple[int, int]] = {}
    for pattern, opening in ((_BRACES, "{"), (_BRACKETS, "[")):
        open_: list[list[int]] = []  # start, and depth of the content
        for match in pattern.finditer(text):
            if match.group() == opening:
                open_.append([match.start(), 0])
            elif open_:
                start, inner = open_.pop()
                ends[start] = (match.end(), inner + 1)
                if open_:
                    open_[-1][1] = max(open_[-1][1], inner + 1)
    return ends


def _repaired(piece: str) -> Any:
    """Return the repaired value of a bracketed piece that is not valid JSON; `None` if there is none."""
    try:
        from json_repair import repair_json  # lazy: json_repair
    except ImportError as error:
        raise BuildError(
            "Reading an LLM's answers needs the json-repair package: pip install 'medteb[build]'."
        ) from error
    plain = _MARKDOWN_MARKS.sub("", piece)
    for pattern, replacement in _CHINESE_PUNCTUATION:
        plain = pattern.sub(replacement, plain)
    if len(plain) > _MAX_PIECE_LENGTH:
        return None
    try:
        repaired = repair_json(plain, return_objects=True, skip_json_loads=True)
    except Exception:  # after a bug of the library the text only counts as unreadable
        return None
    if not isinstance(repaired, dict if piece[0] == "{" else list):
        return None
    return _with_repetitions(repaired, plain)


def _with_repetitions(value: Any, text: str) -> Any:
    """Return a repaired value with `Members`; a key that is repeated in its text occurs twice."""
    counts: dict[str, int] = {}
    _count_keys(value, counts)
    repeated = {key for key, number in counts.items() if _key_count(key, text) > number}

    def members(one: Any) -> Any:
        if isinstance(one, dict):
            object_members = Members((key, members(inner)) for key, inner in one.items())
            object_members.extend((key, None) for key in one if key in repeated)
            return object_members
        return [members(inner) for inner in one] if isinstance(one, list) else one

    return members(value)


def _count_keys(value: Any, counts: dict[str, int]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            counts[key] = counts.get(key, 0) + 1
            _count_keys(inner, counts)
    elif isinstance(value, list):
        for inner in value:
            _count_keys(inner, counts)


def _key_count(key: str, text: str) -> int:
    """Return how often a text contains a string as a key."""
    return len(re.findall(rf"(?<![\w-]){re.escape(key)}(?![\w-])[\s\"'“”‘’]*[:：]", text))
