"""The answers of an LLM that writes texts of tasks, made up from what its prompt shows."""

from __future__ import annotations

import json
import re


def material_in(messages: list[dict]) -> dict[str, str]:
    """Return what stands between the marks of a prompt, by part."""
    found = re.findall(
        r"^<(\w+)-(\w{12})>\n(.*?)\n</\1-\2>$", messages[-1]["content"], re.DOTALL | re.MULTILINE
    )
    return {part: text for part, _, text in found}


def write(messages: list[dict]) -> str:
    """Return a good answer to a prompt."""
    shown = material_in(messages)
    if "abstract" in shown:
        return json.dumps({"question": f"What is known of {shown['abstract'].split()[1]}?"})
    if "answer" in shown:
        return json.dumps({"answer": f"In other words: {len(shown['answer'])} letters."})
    number = re.search(r"\d+", shown["text"])[0]
    kind = shown["text"].split()[0]
    return json.dumps({"sentence1": f"{kind} {number} is one.", "sentence2": f"One is the {kind} {number}."})
