"""Damage what strangers could send, and look for anything but a clear refusal: `python -m tests.fuzz`.

Every case copies a folder, changes one of its files (bytes flipped, cut off, JSON values replaced), and opens
the folder as a user would. The outcome must be a result or a `MarError`; any other exception is a failure,
printed with the seed that reproduces it (`--seed N --cases 1`).
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mar_st.encode.folder import VectorFolder, write_vectors
from mar_st.errors import MarError
from mar_st.files import parse_yaml
from mar_st.index.base import Index
from mar_st.index.build import build_index
from mar_st.index.filters import parse_filter
from mar_st.online.encoders import load_query_encoder
from mar_st.recipes.load import load_recipe
from medteb_mteb.folders.content import read_folder

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
#: Values that replace one of a JSON file.
VALUES: tuple[Any, ...] = (
    None,
    -1,
    0,
    10**30,
    1.5,
    True,
    "",
    "../../x",
    "/etc/passwd",
    [],
    {},
    [[]],
    "\x00",
    "高",
)
#: Files that are not changed: their readers are libraries.
UNREAD = (".safetensors", ".faiss", ".parquet", ".arrow", ".png", ".md")


def damage(path: Path, draw: random.Random) -> None:
    """Change one file."""
    content = path.read_bytes()
    kind = draw.choice(("value", "value", "key", "flip", "cut", "insert"))
    if path.suffix == ".json" and kind in ("value", "key"):
        data = json.loads(content)
        place, owner, key = data, None, None
        while isinstance(place, dict | list) and place and (owner is None or draw.random() < 0.7):
            owner, key = place, draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
            place = place[key]
        if owner is not None:
            owner[key] = draw.choice(VALUES)
            if kind == "key" and isinstance(owner, dict):
                del owner[key]
        content = json.dumps(data).encode()
    elif content:
        spot = draw.randrange(len(content))
        if kind == "cut":
            content = content[:spot]
        elif kind == "insert":
            content = content[:spot] + draw.randbytes(draw.randrange(1, 9)) + content[spot:]
        else:
            content = content[:spot] + bytes([content[spot] ^ draw.randrange(1, 256)]) + content[spot + 1 :]
    path.write_bytes(content)


def made(folder: Path) -> dict[str, tuple[Path, Callable[[Path], object]]]:
    """Make small folders; return each with the function that opens it."""
    vectors = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids = [f"d{number}" for number in range(40)]
    corpus = folder / "corpus.jsonl"
    rows = [{"_id": name, "title": "", "text": f"第{name}篇 感冒", "year": 2000 + len(name)} for name in ids]
    corpus.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    write_vectors(folder / "vectors", ids, vectors)
    build_index(folder / "vectors", folder / "index", corpus=str(corpus), kind="exact", progress=False)
    shutil.copytree(ROOT / "tasks" / "MedTEBSTS", folder / "sts", ignore=shutil.ignore_patterns("train*"))

    def searched(place: Path) -> object:
        index = Index.open(place)
        return index.search(vectors[:2], 5)

    return {
        "vectors": (folder / "vectors", lambda place: VectorFolder.open(place).ids),
        "index": (folder / "index", searched),
        "model": (
            ROOT / "src" / "mar_st" / "models" / "mar-mini",
            lambda place: load_query_encoder(str(place)),
        ),
        "edition": (folder / "sts", read_folder),
    }


def texts(draw: random.Random) -> tuple[str, Callable[[], object]]:
    """Return a damaged text and the function that reads it."""
    name = draw.choice(("filter", "yaml", "recipe"))
    text = {
        "filter": 'department=心内科|儿科,year>=2004,note!="a,b"',
        "yaml": "a: &x [1, {b: c}]\nd: *x\n",
        "recipe": (ROOT / "src" / "mar_st" / "recipes" / "mar-mini.yaml").read_text(encoding="utf-8"),
    }[name]
    for _ in range(draw.randrange(1, 4)):
        spot = draw.randrange(len(text))
        text = (
            text[:spot]
            + draw.choice(("", "\n", ":", "{", "*x", "\x00", "1e999", "<<: *x", "=", "|"))
            + text[spot + 1 :]
        )
    if name == "recipe":
        path = Path(tempfile.mkdtemp()) / "recipe.yaml"
        path.write_text(text, encoding="utf-8")
        return text, lambda: load_recipe(path)
    return text, lambda: parse_filter(text) if name == "filter" else parse_yaml(text)


def case(seed: int, folders: dict[str, tuple[Path, Callable[[Path], object]]], work: Path) -> str | None:
    """Run one case; return what went wrong."""
    draw = random.Random(seed)
    if draw.random() < 0.3:
        what, opened = texts(draw)
    else:
        name = draw.choice(list(folders))
        place = work / name
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folders[name][0], place)
        files = [path for path in sorted(place.rglob("*")) if path.is_file() and path.suffix not in UNREAD]
        path = draw.choice(files)
        damage(path, draw)
        what, opened = str(path.relative_to(work)), lambda: folders[name][1](place)
    try:
        opened()
    except (MarError, ValueError) as error:
        return None if len(str(error).splitlines()) < 40 else f"{what}: a message of many lines"
    except Exception:
        return f"{what}\n{traceback.format_exc()}"
    return None


def main() -> None:
    """Run cases until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=10**9)
    arguments = parser.parse_args()
    end, failures, number = time.monotonic() + arguments.seconds, 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "made").mkdir()
        folders = made(work / "made")
        while number < arguments.cases and time.monotonic() < end:
            seed = arguments.seed + number
            problem = case(seed, folders, work)
            number += 1
            if problem:
                failures += 1
                sys.stdout.write(f"--seed {seed} --cases 1: {problem}\n\n")
    sys.stdout.write(f"{number} cases, {failures} failures\n")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
