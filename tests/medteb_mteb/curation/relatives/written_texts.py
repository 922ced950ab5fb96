"""Tasks whose texts an LLM writes, and the answers of the server in its place."""

from __future__ import annotations

import json
import re

DISEASES = "pairclassification_wiki_diseases_dataset"
SENTENCES = "pairclassification_pubmed_pair_classification"
PUBMED = "retrieval_pubmed_retrieval"
BIORXIV = "retrieval_biorxiv_dataset"
MEDQUAD = "retrieval_medquad_dataset"


def material_in(messages) -> dict[str, str]:
    """Return the texts between the marks of a prompt, by part."""
    matches = re.findall(
        r"^<(\w+)-(\w{12})>\n(.*?)\n</\1-\2>$", messages[-1]["content"], re.DOTALL | re.MULTILINE
    )
    return {part: text for part, _, text in matches}


def write(messages) -> str:
    """Return a good answer to a prompt."""
    shown = material_in(messages)
    if "abstract" in shown:
        return json.dumps({"question": f"What is known of {shown['abstract'].split()[1]}?"})
    if "answer" in shown:
        return json.dumps({"answer": f"In other words: {len(shown['answer'])} letters."})
    number = re.search(r"\d+", shown["text"])[0]
    kind = shown["text"].split()[0]
    return json.dumps({"sentence1": f"{kind} {number} is one.", "sentence2": f"One is the {kind} {number}."})
