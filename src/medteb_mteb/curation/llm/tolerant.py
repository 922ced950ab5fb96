"""Reading JSON as LLMs write it: with thoughts, prose and Markdown around it, and with small mistakes."""

from __future__ import annotations

import json
import re
import unicodedata
from contextlib import suppress
from typing import Any

from mar_st.errors import MarError

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
_OPENING = re.compile(r"[{\[]")
#: An object without others inside it.
_FLAT_OBJECT = re.compile(r'\{(?:[^{}"]++|"(?:[^"\\]|\\.)*+")*+\}')
#: Number of brackets that turn out to be prose at most; after more, reading stops.
_MAX_PROSE_BRACKETS = 200
#: Length of a text that is repaired at most.
_MAX_REPAIRED = 50_000


class Rejected(Exception):  # noqa: N818 - an outcome, not a mistake
    """An unusable answer: `reason` is a short key that is counted, for instance `missing-key`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Members(list[tuple[str, Any]]):
    """Members of an object in their order; a dict would keep only the last of a repeated key."""


_DECODER = json.JSONDecoder(object_pairs_hook=Members, strict=False)


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


def json_values(text: str) -> tuple[list[Any], bool]:
    """Return the outermost objects and arrays of a text that are valid JSON, and whether that is all of them.

    Objects are `Members`. Brackets of prose that hold no JSON are left out.
    """
    if text[:1] == '"' and text[-1:] == '"':
        with suppress(ValueError):  # JSON inside a JSON string
            text = str(json.loads(text))
    values: list[Any] = []
    place = prose = 0
    while prose < _MAX_PROSE_BRACKETS and (start := _OPENING.search(text, place)):
        try:
            value, place = _DECODER.raw_decode(text, start.start())
            values.append(value)
        except RecursionError:
            return [], False
        except ValueError:
            if start.group() == "{":
                return values, False
            place, prose = start.end(), prose + 1
    return values, prose < _MAX_PROSE_BRACKETS


def json_object(content: str) -> dict[str, Any]:
    """Return the JSON object of an answer, without reasoning and text around it, repaired if it is not valid.

    Raises:
        Rejected: `no-json`: there is not exactly one object, or a key occurs twice.
    """
    text = spoken(content)
    values, whole = json_values(text)
    objects = [value for value in values if isinstance(value, Members)]
    if not whole or not objects:
        objects = [_repaired(text)]
    if any(other != objects[0] for other in objects[1:]):
        raise Rejected("no-json")
    try:
        return _as_dict(objects[0])  # type: ignore[no-any-return]
    except RecursionError as error:  # nested hundreds of levels deep
        raise Rejected("no-json") from error


def objects_in(content: str) -> list[dict[str, Any]]:
    """Return the innermost JSON objects of an answer, such as the items of a list, also if it is cut."""
    found = []
    for piece in _FLAT_OBJECT.findall(spoken(content)):
        with suppress(Rejected):
            found.append(json_object(piece))
    return found


def _as_dict(value: Any) -> Any:
    if isinstance(value, Members):
        converted = {key: _as_dict(one) for key, one in value}
        if len(converted) != len(value):
            raise Rejected("no-json")
        return converted
    return [_as_dict(one) for one in value] if isinstance(value, list) else value


def _repaired(text: str) -> Members:
    """Return the one object of a text that is not valid JSON.

    Raises:
        Rejected: `no-json`: no object is closed, or its keys are not those of the text.
    """
    try:
        from json_repair import repair_json  # lazy: json_repair
    except ImportError as error:
        raise MarError(
            "Reading an LLM's answers needs the json-repair package: pip install 'medteb[build]'."
        ) from error
    plain = text.translate(str.maketrans("｛｝", "{}"))
    piece = plain[plain.find("{") : plain.rfind("}") + 1] if "{" in plain else ""
    if not piece or len(piece) > _MAX_REPAIRED or piece.count("{") > piece.count("}"):  # cut
        raise Rejected("no-json")
    if "“" in piece and '"' not in piece:
        piece = unicodedata.normalize("NFKC", piece).translate(str.maketrans("“”", '""'))
    try:
        value = repair_json(piece, return_objects=True, skip_json_loads=True)
    except Exception as error:  # after a bug of the library the text only counts as unreadable
        raise Rejected("no-json") from error
    if not isinstance(value, dict) or any(
        len(re.findall(rf"{re.escape(key)}[\"'“”\s*`]*[:：]", piece)) > 1 for key in value
    ):
        raise Rejected("no-json")
    return Members(value.items())
