"""MAR-0.3B-4B at full size with random weights: run the documented commands, measure their time and memory.

    PYTHONPATH=src python benchmarks/flagship.py WORK         # an hour on 2 processors; 14 GB, 40 GB of disk
    PYTHONPATH=src python benchmarks/flagship.py WORK --tiny  # a rehearsal with small encoders

Both encoders have the published shapes (`published_shapes.py`) and lie in bfloat16 in
`WORK/home/mar-0.3b-4b`, where `$MAR_HOME` finds them. Every step runs in its own processes and writes
`WORK/results/STEP.json` when it has succeeded; run again, the script resumes with the first missing step
(`--only STEP` repeats one). It ends with two Markdown tables: the steps, and the memory of each way to load
in relation to the weights.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parent))
from flagship_folders import write_backbones, write_corpus, write_pairs, write_published, write_recipe
from measured import Measured, loading, run, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "mar-0.3b-4b"
ROOT = Path(__file__).resolve().parents[1]
QUERIES = ["感冒发烧吃什么药", "高血压患者平时要注意什么？", "胃炎能喝酒吗", "孩子咳嗽一周了怎么办"]
#: Texts that are encoded by stock sentence-transformers, and compared with what `mar encode` wrote.
COMPARED_TEXTS = 4


class Flagship:
    """The steps, each a method that gives commands (`commands`), or that runs in a process (`inside`).

    Args:
        work: Where everything lies.
        tiny: Small encoders.
        documents: Documents that are encoded.
        characters: Number of characters kept of each.
        pairs: Pairs of texts that `mteb` compares; default all 1,000 of the packaged edition.
        formats: What `mar export` writes.
    """

    def __init__(
        self,
        work: Path,
        *,
        tiny: bool,
        documents: int,
        characters: int,
        pairs: int | None = None,
        formats: str = "native,openvino",
    ) -> None:
        self.pairs, self.formats = pairs, formats
        self.work, self.tiny, self.documents, self.characters = work.resolve(), tiny, documents, characters
        self.backbones, self.published = self.work / "backbones", self.work / "published"
        self.home = self.work / "home"
        self.model = self.home / NAME
        self.corpus = self.work / "corpus.jsonl"
        self.vectors, self.index, self.exported = (
            self.work / name for name in ("vectors", "index", "exported")
        )

    # -- commands, as a user types them --

    def commands(self) -> dict[str, list[list[str]]]:
        """Commands of the steps, in order; a step of none is one of `inside`."""
        encoding = ["mar", "encode", NAME, str(self.corpus), str(self.vectors), "--dtype", "bfloat16"]
        recipe = self.work / "training" / "recipe.yaml"
        train = ["mar", "train", str(recipe), "--out", str(self.work / "training" / "run")]
        return {
            "backbones": [],
            "build": [],
            "loads": [],
            "sts": [["mteb", "run", "-t", "MedTEBSTS", "-m", NAME, "--output-folder",
                     str(self.work / "mteb"), "--overwrite-strategy", "always"]],
            "stock": [],
            "encode": [encoding],
            "index": [["mar", "index", "build", str(self.vectors), str(self.index), "--kind", "exact"]],
            "export": [["mar", "export", NAME, str(self.exported), "--format", self.formats,
                        "--weight-format", "int8", "--overwrite"]],
            "search": [["mar", "search", str(self.index), QUERIES[0], "-k", "3"],
                       ["mar", "search", str(self.index), QUERIES[0], "-k", "3",
                        "--encoder", str(self.exported)]],
            "serve": [],
            "published": [],
            "align": [[*train, "--stage", "align"]],
            "joint": [train],
        }  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the environment of the commands: these sources, the models of `WORK`, no network."""
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH")]))
        return {
            "PYTHONPATH": path, "MAR_HOME": str(self.home), "HF_HUB_OFFLINE": "1",
            "MEDTEB_DATA": str(self.work / "editions"),
            "TOKENIZERS_PARALLELISM": "false", "MAR_STORE": str(self.work / "training" / "store"),
        }  # fmt: skip

    def step(self, name: str) -> dict[str, Any]:
        """Run a step; gives what was measured, and what it told."""
        scratch = self.work / "elsewhere"  # no command may need the folder it is called from
        scratch.mkdir(parents=True, exist_ok=True)
        before = getattr(self, f"before_{name}", None)
        if before is not None:
            before()
        parts: list[dict[str, Any]] = []
        typed = self.commands()[name]
        for number, command in enumerate(typed or [self._inside(name)]):
            log = self.work / "logs" / f"{name}-{number}.log"
            usage: Measured = run(_executable(command), log, cwd=scratch, env=self.environment())
            shown = " ".join(command) if typed else ""
            parts.append({"command": shown, **vars(usage)})
        facts_file = self.work / "told" / f"{name}.json"
        facts = json.loads(facts_file.read_text(encoding="utf-8")) if facts_file.is_file() else {}
        after: Callable[[], dict[str, Any]] = getattr(self, f"after_{name}", dict)
        return {"step": name, "parts": parts, **facts, **after()}

    def _inside(self, name: str) -> list[str]:
        options = ["--documents", str(self.documents), "--characters", str(self.characters)]
        tiny = ["--tiny"] if self.tiny else []
        return [sys.executable, __file__, str(self.work), "--inside", name, *options, *tiny]

    def tell(self, name: str, facts: dict[str, Any]) -> None:
        """Return the file of a step's result."""
        write_json(self.work / "told" / f"{name}.json", facts)

    # -- steps without a command --

    def inside_backbones(self) -> None:
        write_backbones(self.backbones, tiny=self.tiny)

    def inside_build(self) -> None:
        from mar_st import MAR

        part = self.work / "building"
        shutil.rmtree(part, ignore_errors=True)
        shutil.rmtree(self.model, ignore_errors=True)
        mar = MAR.from_encoders(self.backbones / "query", self.backbones / "document", device="cpu")
        began = time.monotonic()
        mar.save_pretrained(str(part), create_model_card=False)
        self.home.mkdir(exist_ok=True)
        part.replace(self.model)
        stored = sum(path.stat().st_size for path in self.model.rglob("*.safetensors"))
        self.tell("build", {
            "weights_mb": round(weight_bytes(mar) / 2**20), "stored_mb": round(stored / 2**20),
            "save_seconds": round(time.monotonic() - began, 1),
        })  # fmt: skip

    def inside_loads(self) -> None:
        import mteb
        import transformers.models.gte.modeling_gte
        import transformers.models.qwen3.modeling_qwen3  # noqa: F401
        from sentence_transformers import SentenceTransformer

        from mar_st import MAR

        query, document = (self.backbones / side for side in ("query", "document"))
        folder = str(self.model)
        ways: dict[str, tuple[Callable[[], Any], list[Path]]] = {
            'MAR.from_pretrained(routes="query")': (
                lambda: MAR.from_pretrained(NAME, routes="query", device="cpu"), [query]),
            'MAR.from_pretrained(routes="document")': (
                lambda: MAR.from_pretrained(NAME, routes="document", device="cpu"), [document]),
            "MAR.from_pretrained": (lambda: MAR.from_pretrained(NAME, device="cpu"), [query, document]),
            "SentenceTransformer": (
                lambda: SentenceTransformer(folder, device="cpu"), [query, document]),
            "mteb.get_model": (lambda: mteb.get_model(NAME, device="cpu").model, [query, document]),
            "MAR.from_encoders": (
                lambda: MAR.from_encoders(query, document, device="cpu"), [query, document]),
        }  # fmt: skip
        loads = self.work / "told" / "loads"
        for number, (way, (load, tokenizers)) in enumerate(ways.items()):
            file = loads / f"{number}.json"
            if not file.is_file():
                write_json(file, {"way": way, **loading(load, weight_bytes, tokenizers)})
            print(file.read_text(encoding="utf-8"), flush=True)
        self.tell(
            "loads", {"loads": [json.loads((loads / f"{i}.json").read_text()) for i in range(len(ways))]}
        )

    def inside_stock(self) -> None:
        import numpy as np
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(self.model), device="cpu")
        texts = self.texts()[:COMPARED_TEXTS]
        began = time.monotonic()
        queries = model.encode_query(QUERIES, convert_to_tensor=True).float().numpy()
        middle = time.monotonic()
        documents = model.encode_document(texts, convert_to_tensor=True).float().numpy()
        lengths = [*np.linalg.norm(queries, axis=1), *np.linalg.norm(documents, axis=1)]
        if max(abs(length - 1) for length in lengths) > 0.02:
            raise SystemExit(f"lengths of vectors are {lengths}")
        np.save(self.work / "stock.npy", documents)
        self.tell("stock", {
            "queries_seconds": round(middle - began, 2),
            "documents_seconds": round(time.monotonic() - middle, 2),
            "texts": [len(QUERIES), len(texts)], "dim": documents.shape[1],
        })  # fmt: skip

    def inside_serve(self) -> None:
        server = subprocess.Popen(
            _executable(["mar", "serve", str(self.index), "--encoder", str(self.exported), "--port", "0"]),
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            began = time.monotonic()
            line = server.stdout.readline()
            if not line.startswith("listening on"):
                raise SystemExit(f"the server did not start: {line}")
            port = int(line.rsplit(":", 1)[1])
            ready = time.monotonic() - began
            body = json.dumps({"query": QUERIES[0], "k": 3}).encode()
            answer = _post(f"http://127.0.0.1:{port}/search", body)
            self.tell("serve", {"start_seconds": round(ready, 1), "answer": answer})
        finally:
            server.send_signal(signal.SIGTERM)
            if server.wait(60):
                raise SystemExit(f"the server ended with {server.returncode}")

    def inside_published(self) -> None:
        import peft  # noqa: F401

        from mar_st.model.published import assemble

        write_published(self.published, self.backbones)
        texts = self.texts()[:COMPARED_TEXTS]
        usage = loading(
            lambda: assemble(self.published, device="cpu"),
            weight_bytes,
            [self.backbones / side for side in ("query", "document")],
            check=lambda mar: _released_scoring(mar, texts),
        )
        self.tell("published", {"loads": [{"way": "mar_st.model.published.assemble", **usage}]})

    # -- before and after commands --

    def texts(self) -> list[str]:
        """The documents that are encoded."""
        write_corpus(self.corpus, self.documents, self.characters)
        lines = self.corpus.read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["text"] for line in lines]

    def before_sts(self) -> None:
        shutil.rmtree(self.work / "mteb", ignore_errors=True)
        (self.work / "editions").mkdir(parents=True, exist_ok=True)
        write_pairs(self.work / "editions", self.pairs)

    def before_index(self) -> None:
        shutil.rmtree(self.index, ignore_errors=True)

    def before_encode(self) -> None:
        shutil.rmtree(self.vectors, ignore_errors=True)
        write_corpus(self.corpus, self.documents, self.characters)

    def before_align(self) -> None:
        write_recipe(self.work / "training", self.backbones, tiny=self.tiny)

    def after_sts(self) -> dict[str, Any]:
        (path,) = (self.work / "mteb").rglob("MedTEBSTS.json")
        result = json.loads(path.read_text(encoding="utf-8"))
        return {"pairs": self.pairs or 1000, "score": result["scores"]["test"][0]["main_score"],
                "evaluation_seconds": round(result["evaluation_time"], 1)}  # fmt: skip

    def after_encode(self) -> dict[str, Any]:
        """Tokens, and the cosines with what stock sentence-transformers gave, at least."""
        import numpy as np
        from transformers import AutoTokenizer

        from mar_st.encode import VectorFolder

        tokenizer = AutoTokenizer.from_pretrained(self.backbones / "document")
        facts = {"tokens": sum(len(ids) + 1 for ids in tokenizer(self.texts())["input_ids"])}
        stock = self.work / "stock.npy"
        if stock.is_file():
            vectors, other = VectorFolder.open(self.vectors)[:COMPARED_TEXTS], np.load(stock)
            both = np.linalg.norm(vectors, axis=1) * np.linalg.norm(other, axis=1)
            facts["least_cosine"] = round(float(((vectors * other).sum(1) / both).min()), 5)
        return facts

    def after_export(self) -> dict[str, Any]:
        listing = json.loads((self.exported / "export.json").read_text(encoding="utf-8"))
        return {"variants": {name: {key: round(one["report"][key], 4) for key in ("p50_ms", "cosine_mean")}
                             for name, one in listing["variants"].items()}}  # fmt: skip


def _released_scoring(mar: Any, texts: list[str]) -> None:
    """Make sure that documents are cut after their normalisation, and scored by dot product."""
    import numpy as np

    documents, queries = mar.encode_corpus(texts), mar.encode_queries(QUERIES)
    lengths = np.linalg.norm(documents, axis=1)
    if lengths.min() <= 0 or lengths.max() >= 1:
        raise SystemExit(f"released scoring gives lengths below 1; found {lengths}")
    if mar.similarity_fn_name != "dot" or not np.isfinite(queries @ documents.T).all():
        raise SystemExit("scores are not finite dot products")


def _executable(command: list[str]) -> list[str]:
    """A command with the interpreter of this one."""
    if command[0] == "mar":
        return [sys.executable, "-m", "mar_st.cli", *command[1:]]
    if command[0] == "mteb":
        return [str(Path(sys.executable).with_name("mteb")), *command[1:]]
    return command


def _post(url: str, body: bytes) -> Any:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=300) as answer:
        return json.load(answer)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write a whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8")
    part.replace(path)


def tables(results: list[dict[str, Any]]) -> str:
    """The steps, and the loads, as Markdown."""
    head = ("step", "seconds", "of processors", "peak MiB", "not files", "")
    lines = [f"| {' | '.join(head)} |", "|---|---|---|---|---|---|"]
    for result in results:
        further = {
            key: value for key, value in result.items() if key not in ("step", "parts", "loads", "answer")
        }
        for number, part in enumerate(result["parts"]):
            what = f"`{part['command']}`" if part["command"] else result["step"]
            facts = ", ".join(f"{key} {value}" for key, value in further.items()) if not number else ""
            numbers = (
                part["seconds"],
                part["cpu_seconds"],
                f"{part['peak_mb']:,.0f}",
                f"{part['own_mb']:,.0f}",
            )
            lines.append(f"| {what} | {' | '.join(map(str, numbers))} | {facts} |")
    loads = [load for result in results for load in result.get("loads", ())]
    if loads:
        head = (
            "load",
            "seconds",
            "weights MiB",
            "tokenizers MiB",
            "peak MiB",
            "not files",
            "peak / sum of both",
        )
        lines += ["", f"| {' | '.join(head)} |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| `{load['way']}` | {load['seconds']} | {load['weights_mb']:,.0f} | {load['tokenizers_mb']:,.0f} | "
        f"{load['peak_mb']:,.0f} | {load['own_mb']:,.0f} | {load['ratio']:.2f} |"
        for load in loads
    ]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--tiny", action="store_true", help="small encoders of the same architectures")
    parser.add_argument("--documents", type=int, default=200)
    parser.add_argument("--characters", type=int, default=60, help="number of characters kept of a document")
    parser.add_argument("--pairs", type=int, help="pairs of texts that mteb compares; default all 1,000")
    parser.add_argument("--formats", default="native,openvino", help="of the exported query encoder")
    parser.add_argument("--only", nargs="+", help="steps to run, again if they have a result")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    flagship = Flagship(
        options.work, tiny=options.tiny, documents=options.documents, characters=options.characters,
        pairs=options.pairs, formats=options.formats,
    )  # fmt: skip
    if options.inside:
        os.environ.update({k: v for k, v in flagship.environment().items() if k != "PYTHONPATH"})
        getattr(flagship, f"inside_{options.inside}")()
        return
    steps = list(flagship.commands())
    if set(options.only or ()) - set(steps):
        parser.error(f"steps are {', '.join(steps)}")
    files = {name: flagship.work / "results" / f"{name}.json" for name in steps}
    for name in options.only or steps:
        if options.only or not files[name].is_file():
            print(f"{name} ...", file=sys.stderr, flush=True)
            write_json(files[name], flagship.step(name))
    print(tables([json.loads(f.read_text(encoding="utf-8")) for f in files.values() if f.is_file()]))


if __name__ == "__main__":
    main()
