"""The model `rule-questions` of `rule_judges.py`: writes queries, tasks, and examples of tasks.

It parses the Chinese prompts of `medteb synthesize`. The subject of a query comes from the document's first
words, its aspect from a list. Standard library only.
"""

from __future__ import annotations

import random
import re
from typing import Any

#: Aspects of a subject: words that indicate one in a document, a question about it, a search keyword.
ASPECTS = (
    (("饮食", "吃", "喝", "食物"), "{}平时饮食上要注意什么？", "饮食"),
    (("引起", "原因", "导致", "由于"), "为什么会得{}？", "病因"),
    (("治疗", "服用", "药", "手术"), "{}现在有什么好的治疗办法？", "治疗"),
    (("检查", "化验", "诊断"), "怀疑{}需要做哪些检查？", "检查"),
    (("预防", "避免", "注意"), "平时怎样才能预防{}？", "预防"),
    (("恢复", "康复", "休息"), "{}一般多久能恢复？", "康复"),
)
SUBJECTS = ("高血压", "痛风", "偏头痛", "胃溃疡", "湿疹", "哮喘", "甲状腺结节", "骨质疏松")
QUERY_KINDS = (
    "一种症状", "一种药物的名称", "一份化验报告", "一段病情描述", "一条健康传言",
    "一个医学术语", "家属的提问",
)  # fmt: skip
DOCUMENT_KINDS = (
    "相关的科普文章", "对应的诊疗指南段落", "医生的回答", "药品说明书中的一段",
    "研究论文的摘要", "病历中的记录",
)  # fmt: skip

_FILLERS = re.compile(
    r"请问|医生|您好|你好|我|的|了|是|有|在|患者|一般|主要|这种情况|考虑|建议|可能|可以|应该"
)


def subject_of(document: str) -> str:
    """Return the subject of a document: its first words without fillers."""
    parts = (_FILLERS.sub("", part) for part in re.split(r"[\W_]+", document))
    return next((part[:8] for part in parts if len(part) > 1), "健康")


def queries_for(document: str, forms: list[str], rng: random.Random) -> list[str]:
    """Return queries about a document's subject, each about another aspect while there are some left.

    Args:
        document: The document.
        forms: Form of each query, as described in the prompt.
        rng: Shuffles the aspects; those of the document come first.
    """
    aspects = rng.sample(ASPECTS, len(ASPECTS))
    aspects.sort(key=lambda aspect: not any(word in document for word in aspect[0]))
    subject = subject_of(document)
    return [query_for(subject, aspects[i % len(aspects)], form) for i, form in enumerate(forms)]


def query_for(subject: str, aspect: tuple[tuple[str, ...], str, str], form: str) -> str:
    """Return a query about an aspect of a subject, in the given form."""
    _, question, keyword = aspect
    if "关键词" in form:
        return f"{subject} {keyword}"
    if "口吻" in form:
        return f"家里人最近遇到这样的情况，已经有一阵子了，心里很着急。请问{question.format(subject)}"
    return question.format(subject)


def example(text: str, rng: random.Random) -> dict[str, str]:
    """Return an example of a task: a query, and two documents, one of them about another aspect.

    Args:
        text: The prompt, which states their lengths.
        rng: Chooses the subject and the aspects.
    """
    subject = rng.choice(SUBJECTS)
    (_, question, keyword), (_, _, other) = rng.sample(ASPECTS, 2)
    query = question.format(subject)
    if "少于8个字" in text:
        query = f"{subject}{keyword}"
    elif "至少16个字" in text:
        query = f"家里老人最近查出来有{subject}，{query}"
    size = int(re.findall(r"(\d+)个字左右", text)[-1])

    def document(line: str) -> str:
        return "".join(f"{i}、{line}" for i in range(1, 40))[:size]

    return {
        "user_query": query,
        "positive_document": document(f"就{subject}而言，{keyword}因人而异，宜听从医生的安排。"),
        "hard_negative_document": document(f"有{subject}的人常常问起{other}，这里只谈它。"),
    }


def written(messages: list[dict[str, str]]) -> dict[str, Any]:
    """Return the answer, a JSON object, to a prompt for queries, tasks, or an example of a task.

    Raises:
        ValueError: The prompt asks for none of them.
    """
    text = messages[-1]["content"]
    # Seeded by the prompt: the same prompt gets the same answer, in any order.
    rng = random.Random(text)
    document = re.findall(r"^<document-(\w+)>\n(.*?)\n</document-\1>$", text, re.DOTALL | re.MULTILINE)
    if document:
        forms = re.findall(r"^\d+\. (.*)$", text.partition("\n# 要求\n")[0], re.MULTILINE)
        return {"queries": queries_for(document[-1][1], forms, rng)}
    if '"tasks"' in text:
        tasks = [f"给定{query}，检索{documents}。" for query in QUERY_KINDS for documents in DOCUMENT_KINDS]
        return {"tasks": rng.sample(tasks, 20)}
    if '"user_query"' in text and re.search(r"\d个字左右", text):
        return example(text, rng)
    raise ValueError("this prompt asks for no query, no task and no example in Chinese")
