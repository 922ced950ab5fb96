"""Defence against prompt injection: a judge must not read passages as instructions.

Four lines of defence, none of which is enough alone:

1. Each passage is enclosed in delimiters that it cannot contain; markup of chat templates and characters
   that are invisible are removed from the texts that the judge receives.
2. Text that looks like an instruction to a judge is judged alone, so that it cannot affect others.
3. Positive and negative control passages are mixed in (`medteb_mteb.curation.judge.prompt`): if one
   gets an impossible grade, the whole answer is rejected.
4. A passage that a judge graded positive is shown to it again, with a query that it cannot answer
   (`medteb_mteb.curation.judge.judging`): a passage that raises itself, in whatever words, does so again.

Not caught: an instruction that lowers other passages by only a grade or two (a passage that repeats the
query may be a C), or one that acts only on queries with certain words.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Trigger words, and the pattern of an instruction with one of them. The words are looked for first because
#: that is fast: a corpus has millions of texts, and nearly all have none of the words.
_RULES: tuple[tuple[tuple[str, ...], str], ...] = (
    # Instructions in Chinese: words of the mainland and of Taiwan, in simplified characters.
    (
        ("忽略", "无视", "忘记", "忘掉", "不要理会", "不用管", "跳过", "推翻"),
        r"(忽略|无视|忘记|忘掉|不要理会|不用管|跳过|推翻).{0,12}(指令|指示|提示|要求|规则|说明|内容|设定)",
    ),
    (("系统", "开发者"), r"(系统|开发者)(提示词?|消息|讯息|指令)"),
    (
        ("评分", "评审", "评估", "裁判", "助手", "人工智", "模型", "ai"),
        r"你(现在|从现在起|接下来)?(是|扮演|作为)一?[个名位]?"
        r"(评分|评审|评估|裁判|助手|人工智[能慧]|大?语言?模型|ai)",
    ),
    (
        ("评", "判", "打", "标", "给", "输出", "返回", "回传"),
        r"(请|必须|应当?|务必|直接|统一|一律|全部|都|均).{0,12}(评为|评成|判为|打为|标为|评|打|给|输出|返回|回传)"
        r".{0,5}(?<!维生素)[“\"'「]?[sabcd](?![a-z0-9])",
    ),
    (
        ("段落", "文档", "文件", "passage"),
        r"(所有|全部|每个|其他|其余|其它|以上|以下|上述)(的)?(段落|文档|文件|passages?).{0,16}(评|打分|给|判|输出|标)|"
        r"(本|该|此|这个?|上一?|下一?)(段落|文档|文件|passage).{0,12}(评为|评级|评分|打分|得分|等级).{0,8}"
        r"[sabcd最满高低]",
    ),
    (("json", "passage"), r"(输出|返回|回传|回复|回答).{0,8}(json|passage)"),
    # The same in English.
    (
        ("ignore", "disregard", "forget", "override", "bypass"),
        r"(ignore|disregard|forget|override|bypass).{0,30}"
        r"(instruction|prompt|rule|above|previous|guideline)",
    ),
    (("prompt", "message"), r"(system|developer)\s*(prompt|message)"),
    (
        ("you are", "youare"),
        r"you\s?are\s?(now\s?|an?\s?)+(assistant|judge|grader|rater|ai\b|language\s?model)",
    ),
    (
        ("passage", "document", "grade", "rating", "score", "label"),
        r"(rate|grade|score|label|mark|assign|give|output|return|answer).{0,30}"
        r"(passage|document|grade|rating|score|label).{0,30}\b[sabcd]\b|"
        r"(all|every|each|other|this)\s?(passage|document)s?.{0,30}"
        r"(grade|rate|score|irrelevant|relevant|\b[sabd]\b)",
    ),
    # Our own delimiters, and markup of any chat template.
    (("passage-",), r"passage-\d"),
    (
        ("<", "["),
        r"</?\s*(passage|query|system|user|assistant|instructions?)\b|<\|[^|<>]{1,40}\|>|\[/?inst\]|<</?sys>>|"
        r"<(start|end)_of_turn>",
    ),
    (("system", "assistant", "user", "human"), r"(^|\n)\s*#{0,4}\s*(system|assistant|user|human)\s*[:：]"),
)
#: Traditional characters in these rules, so that each rule is written once.
_TO_SIMPLIFIED = str.maketrans(
    "無視記會過內規則說評審級標給輸開發從現個語統務應當請該這滿檔詞傳訊餘為設維複係",
    "无视记会过内规则说评审级标给输开发从现个语统务应当请该这满档词传讯余为设维复系",
)

_INSTRUCTIONS = tuple((words, re.compile(pattern)) for words, pattern in _RULES)

#: Unicode categories control and format, except line break and tab: invisible, but read by models.
_INVISIBLE_CHARACTERS = re.compile(
    "[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e"
    "\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb\U000110bd\U000110cd"
    "\U00013430-\U00013438\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0001\U000e0020-\U000e007f]+"
)

_REMOVE_GAPS = str.maketrans("", "", " \t*_.·•-—|~/\\")

_CHAT_TEMPLATE_MARKUP = re.compile(
    r"<[|｜](?=[^|｜<>]{1,40}[|｜]>)|\[(?=/?inst\])|<(?=</?sys>>)|<(?=(start|end)_of_turn>)|<(?=/?s>)",
    re.IGNORECASE,
)


def defused(text: str) -> str:
    """Return a text in the form shown to a judge.

    Characters of the categories control and format are removed (line breaks and tabs stay): people do not see
    them, but models read them. Markup of chat templates is broken up by a space, since a tokenizer may take
    it for the end of the message.
    """
    seen = _visible(text)
    if "<" in seen or "[" in seen:
        return _CHAT_TEMPLATE_MARKUP.sub(lambda match: match.group() + " ", seen)
    return seen


def _visible(text: str) -> str:
    # All of them are unprintable, which is much faster to check.
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return _INVISIBLE_CHARACTERS.sub("", text)


def suspicious(text: str) -> bool:
    """Return True if a text looks like a prompt injection.

    The patterns are wide on purpose: a false positive is merely judged alone, which costs one request.
    """
    plain = unicodedata.normalize("NFKC", _visible(text)).lower().translate(_TO_SIMPLIFIED)
    # Text with gaps between its characters is also checked without them.
    tight = plain.translate(_REMOVE_GAPS)
    return any(
        any(word in form for word in words) and pattern.search(form) is not None
        for form in ((plain,) if tight == plain else (plain, tight))
        for words, pattern in _INSTRUCTIONS
    )


def remarks(texts: Iterable[str], what: str) -> tuple[str, ...]:
    """Return a note on the texts that look like a prompt injection; none without such texts."""
    number = sum(map(suspicious, texts))
    note = f"{number} {what} look as if they wanted to instruct an LLM; look at what it made of them."
    return (note,) * bool(number)


def delimiter(request: bytes, texts: tuple[str, ...]) -> str:
    """Return a word (12 hex digits) that none of the texts contains.

    It is derived from the digest of the request, which includes the texts: nobody can write a passage that
    contains it, and the same request always gives the same prompt.
    """
    for number in range(1000):
        word = hashlib.sha256(b"delimiter %d " % number + request).hexdigest()[:12]
        if not any(word in text for text in texts):
            return word
    raise AssertionError("a thousand digests are in the texts")
