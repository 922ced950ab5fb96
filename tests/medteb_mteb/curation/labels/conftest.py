"""A folder in the layout of an edition of retrieval."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def write_retrieval_folder():
    def write(folder):
        (folder / "qrels").mkdir(parents=True)
        rows = {
            "corpus": [{"_id": f"d{i}", "title": "", "text": f"第{i}篇文章"} for i in range(5)],
            "queries": [{"_id": f"q{i}", "text": f"第{i}个问题"} for i in range(3)],
        }
        for name, contents in rows.items():
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in contents)
            (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\td{i}\t1" for i in range(3))]
        (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
        return folder

    return write
