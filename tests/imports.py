"""Imports of the modules of src/, read from their source: at module level, and inside functions."""

from __future__ import annotations

import ast
import gc
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SRC = Path(__file__).parents[1] / "src"
PACKAGES = ("mar_st", "medteb_mteb")

#: Libraries that are slow to import, extras that may be absent, and modules of Python that are slow or not on
#: every platform.
HEAVY = {
    "accelerate", "ahocorasick_rs", "bm25s", "datasets", "faiss", "fastapi", "filelock", "httpx",
    "huggingface_hub", "importlib.metadata", "jieba", "json_repair", "matplotlib", "milvus_lite", "mteb",
    "nncf", "numpy", "onnx", "onnxruntime", "openai", "opencc", "openvino", "orjson", "pandas", "peft",
    "phonenumbers", "presidio_analyzer", "prometheus_client", "pyarrow", "pydantic", "pymilvus",
    "pytrec_eval", "ray", "regex", "rensa", "resource", "rich", "safetensors", "safetensors.torch", "scipy",
    "sentence_transformers", "sklearn", "starlette", "tokenizers", "torch", "torch._dynamo",
    "torch._subclasses", "torch.nn.attention.varlen", "tqdm", "transformers", "uvicorn", "warnings",
    "yaml",
}  # fmt: skip

#: Mark of an import of light modules that the commands leave to the call, so that `--help` stays fast.
START_UP = "start-up"

_MARK = re.compile(r"# lazy: ([\w.-]+)")


def modules() -> dict[str, Path]:
    """Files by dotted name; a package is its `__init__.py`."""
    return {
        ".".join(file.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__"): file
        for package in PACKAGES
        for file in (SRC / package).rglob("*.py")
    }


MODULES = modules()


@cache
def lines(module: str) -> list[str]:
    return MODULES[module].read_text(encoding="utf-8").splitlines()


def parsed(source: str) -> ast.Module:
    """Parse without collections of garbage, which would visit all trees again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(source)
    finally:
        if enabled:
            gc.enable()


@cache
def tree(module: str) -> ast.Module:
    return parsed("\n".join(lines(module)))


def _for_types(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def at_module_level(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when the module is imported."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If):
            yield from at_module_level(([] if _for_types(node) else node.body) + node.orelse)
        elif isinstance(node, ast.Try):
            handled = [statement for handler in node.handlers for statement in handler.body]
            yield from at_module_level(node.body + handled + node.orelse + node.finalbody)
        elif isinstance(node, ast.With | ast.ClassDef):
            yield from at_module_level(node.body)


def in_functions(module: str) -> Iterator[ast.Import | ast.ImportFrom]:
    """Imports that run when a function is called."""

    def walk(node: ast.AST, inside: bool) -> Iterator[ast.Import | ast.ImportFrom]:
        for child in ast.iter_child_nodes(node):
            if inside and isinstance(child, ast.Import | ast.ImportFrom):
                yield child
            function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            yield from walk(child, inside or function)

    yield from walk(tree(module), False)


def mark(module: str, node: ast.stmt) -> str | None:
    """The name that `# lazy: NAME` gives beside an import."""
    match = _MARK.search("\n".join(lines(module)[node.lineno - 1 : node.end_lineno]))
    return match[1] if match else None


@cache
def on_first_use(package: str) -> dict[str, str]:
    """Names that a package imports by `__getattr__`, with their modules as type checkers see them."""
    body = tree(package).body
    if not any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in body):
        return {}
    typed = [node.body for node in body if isinstance(node, ast.If) and _for_types(node)]
    imports = [node for nodes in typed for node in nodes if isinstance(node, ast.ImportFrom)]
    return {alias.name: node.module or "" for node in imports for alias in node.names}


def _with_parents(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def imported(node: ast.Import | ast.ImportFrom) -> tuple[set[str], set[str]]:
    """Own modules and heavy libraries that one statement imports itself."""
    if isinstance(node, ast.Import):
        names = {alias.name for alias in node.names}
    else:
        package = node.module or ""
        names = {package, *(f"{package}.{alias.name}" for alias in node.names)}
        if package in MODULES:
            homes = on_first_use(package)
            names |= {homes[alias.name] for alias in node.names if alias.name in homes}
    names = set().union(*map(_with_parents, names))
    return names & set(MODULES), names & HEAVY


@cache
def direct(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Own modules and heavy libraries that a module imports itself, at module level."""
    parts = [imported(node) for node in at_module_level(tree(module).body)]
    return frozenset().union(*(own for own, _ in parts)), frozenset().union(*(heavy for _, heavy in parts))


@cache
def loaded(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Own modules and heavy libraries that are loaded once a module is imported."""
    seen, waiting = set(), list(_with_parents(module))
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += direct(one)[0]
    return frozenset(seen), frozenset().union(*(direct(one)[1] for one in seen))


def brought(node: ast.Import | ast.ImportFrom) -> tuple[set[str], set[str]]:
    """Own modules and heavy libraries that are loaded once a statement has run."""
    own, heavy = imported(node)
    parts = [loaded(module) for module in own]
    return own.union(*(modules for modules, _ in parts)), heavy.union(*(modules for _, modules in parts))
