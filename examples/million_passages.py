"""Search a million Chinese medical passages on a laptop, with memory-mapped vectors.

python examples/million_passages.py                       # 5,000 passages of the packaged edition
python examples/million_passages.py CORPUS.jsonl FOLDER   # your own: _id, text, optional title; resumable

Needs `pip install '.[serve,export]'`. Then: `mar serve FOLDER/index --encoder FOLDER/encoder`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from mar_st import EncodeSettings, Searcher, build_index, encode_corpus
from mar_st.export import export

MODEL = "mar-mini"
QUERIES = ("高血压不能吃什么", "做胃镜前能喝水吗", "小孩发烧怎么办")


def packaged_corpus() -> Path:
    """Return the folder of the packaged corpus."""
    import medteb_mteb

    package = Path(str(medteb_mteb.__file__)).parent
    folders = (root / "MedTEBRetrieval" for root in (package / "_tasks", package.parents[1] / "tasks"))
    return next(folder for folder in folders if folder.is_dir())


def main(corpus: str | Path | None = None, folder: str | Path = "passages") -> list[str]:
    """Encode, index, export and search; return the id of the best passage for each query."""
    folder = Path(folder)
    # Offline, once. Run it again to resume a step that was killed.
    encode_corpus(MODEL, corpus or packaged_corpus(), folder / "vectors", EncodeSettings(precision="float16"))
    if not (folder / "index" / "manifest.json").is_file():
        build_index(folder / "vectors", folder / "index", kind="auto")
    if not (folder / "encoder" / "export.json").is_file():
        export(MODEL, folder / "encoder")

    # Online: from here on, neither torch nor any file of the document encoder is needed.
    searcher = Searcher.open(folder / "index", folder / "encoder")
    best = []
    for query, hits in zip(QUERIES, searcher.search(QUERIES, k=3, hybrid=True), strict=True):
        print(query)
        for hit in hits:
            print(f"  {hit.rank}. {hit.title}  {hit.snippet[:50]}")
        best.append(hits[0].id)
    return best


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(*sys.argv[1:3])
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(None, scratch)
