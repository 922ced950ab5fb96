"""Structure of the tests, imports of the modules, and names of the classes."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests import imports

TESTS = Path(__file__).parent
#: In programs that a test starts, too.
IMPORT = re.compile(r"^\s*(?:from|import) tests[\w.]*\.test_\w+", re.MULTILINE)


@pytest.mark.parametrize(
    "folder",
    sorted({path.parent for path in TESTS.rglob("test_*.py")}),
    ids=lambda path: path.relative_to(TESTS).as_posix(),
)
def test_no_test_imports_another(folder):
    """Shared code is in `conftest.py` or a helper module, so that any test can be renamed or removed."""
    importing = {
        path.name: IMPORT.findall(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.py"))
    }
    assert {name: lines for name, lines in importing.items() if lines} == {}


#: Calls that slow down the start of a test run or depend on the machine. Only fixtures and tests make them.
NOT_AT_COLLECTION = ("subprocess.", "multiprocessing.", "socket.", "build_kernel", "compiled(", "train(")


def at_collection(node):
    """Calls that run when a test file is imported: not in functions, but in their decorators and defaults."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for part in [*child.decorator_list, child.args]:
                yield from at_collection(ast.Expression(part))
        elif not isinstance(child, ast.Lambda):
            if isinstance(child, ast.Call):
                yield ast.unparse(child)
            yield from at_collection(child)


def slow_calls(source):
    if not any(call.rstrip(".(") in source for call in NOT_AT_COLLECTION):
        return []
    return [call for call in at_collection(imports.parsed(source)) if call.startswith(NOT_AT_COLLECTION)]


def test_nothing_is_compiled_or_started_at_collection():
    by_file = {
        path.relative_to(TESTS).as_posix(): slow_calls(path.read_text(encoding="utf-8"))
        for path in TESTS.rglob("*.py")
    }
    assert {name: calls for name, calls in by_file.items() if calls} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import subprocess\nMADE = subprocess.run(['c++'])", 1),
        ("@pytest.mark.skipif(subprocess.run(['c++']).returncode, reason='')\ndef test(): pass", 1),
        ("def test(made=subprocess.run([])): pass", 1),
        ("def test():\n    subprocess.run(['c++'])", 0),
        ("run = lambda: subprocess.run(['c++'])", 0),
    ],
)
def test_calls_at_collection_are_found(source, count):
    assert len(slow_calls(source)) == count


@pytest.mark.parametrize("package", imports.PACKAGES)
def test_tests_mirror_the_sources(package):
    """`src/a/b.py` is tested by `tests/a/test_b.py` or `test_b_*.py`; other files say what they are about."""
    unclear = []
    for path in sorted((TESTS / package).rglob("test_*.py")):
        folder = imports.SRC / path.parent.relative_to(TESTS)
        names = [entry.stem.lstrip("_") for entry in folder.glob("*") if not entry.name.startswith("__")]
        subject = path.stem.removeprefix("test_")
        mirrors = any(subject == name or subject.startswith(f"{name}_") for name in names)
        if not folder.is_dir() or not (mirrors or ast.get_docstring(imports.parsed(path.read_text("utf-8")))):
            unclear.append(path.relative_to(TESTS).as_posix())
    assert unclear == []


#: Modules of no more lines (constants, a re-export) need no tests of their own.
TRIVIAL_LINES = 5


@pytest.mark.parametrize("package", imports.PACKAGES)
def test_every_public_module_has_a_test_file_of_its_name(package):
    missing = []
    for path in sorted((imports.SRC / package).rglob("*.py")):
        lines = [line for line in path.read_text("utf-8").splitlines() if line.strip()]
        if path.name.startswith("_") or len(lines) <= TRIVIAL_LINES:
            continue
        folder = TESTS / path.parent.relative_to(imports.SRC)
        names = [entry.stem.removeprefix("test_") for entry in folder.glob("test_*.py")]
        if not any(name == path.stem or name.startswith(f"{path.stem}_") for name in names):
            missing.append(path.relative_to(imports.SRC).as_posix())
    assert missing == []


#: A docstring says what a function does or returns, in a sentence.
RIDDLES = ("What ", "Whether ", "See ")


def test_no_docstring_begins_with_what_whether_or_see():
    places = [
        f"{module}:{getattr(node, 'lineno', 1)}"
        for module in sorted(imports.MODULES)
        for node in ast.walk(imports.tree(module))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(RIDDLES)
    ]
    assert places == []


@pytest.mark.parametrize("package", ["mar_st", "medteb_mteb"])
def test_class_names_are_unique_within_a_package(package):
    trees = [imports.tree(module) for module in imports.MODULES if module.split(".")[0] == package]
    names = Counter(node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    assert len(names) > 200
    assert {name: count for name, count in names.items() if count > 1} == {}


def test_the_two_packages_share_no_public_class_names():
    names = {
        package: {
            node.name
            for module in imports.MODULES
            if module.split(".")[0] == package
            for node in imports.tree(module).body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        }
        for package in ("mar_st", "medteb_mteb")
    }
    assert set.intersection(*names.values()) == set()


#: Lines of a module, and of the statements of a function: its signature and docstring do not count.
MODULE_LINES, FUNCTION_LINES = 400, 66


def test_modules_and_functions_are_short():
    sizes = {}
    for module in imports.MODULES:
        sizes[module] = len(imports.lines(module)) / MODULE_LINES
        for node in ast.walk(imports.tree(module)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0]
                sizes[f"{module}:{node.name}"] = (node.end_lineno - first.lineno + 1) / FUNCTION_LINES
    assert len(sizes) > 4000
    assert {name: size for name, size in sizes.items() if size > 1} == {}


def test_the_architecture_page_names_every_folder_and_only_files_that_exist():
    source = TESTS.parent / "src"
    page = (TESTS.parent / "docs" / "concepts" / "architecture.md").read_text(encoding="utf-8")
    layout = page.partition("## Source layout")[2].partition("\n## ")[0]
    for package in ("mar_st", "medteb_mteb"):
        folders = {path.parent.name for path in (source / package).glob("*/__init__.py")}
        assert folders - set(re.findall(r"`(\w+)/`", layout)) == set()
    walk = page.partition("## How four commands work")[2].partition("\n## ")[0]
    files = re.findall(r"`([\w/]+\.py)`", walk)
    assert len(files) > 25
    known = {path.relative_to(source).as_posix() for path in source.rglob("*.py")}
    assert [file for file in files if not any(path.endswith(f"/{file}") for path in known)] == []


@pytest.fixture(scope="module")
def at_start_up():
    """Modules that `mar --help` and `medteb --help` load."""
    return imports.loaded("mar_st.cli")[0] | imports.loaded("medteb_mteb.cli")[0]


def fault(module, node, at_start_up):
    """Return the fault of an import inside a function, or `None`."""
    name = imports.mark(module, node)
    own, libraries = imports.brought(node)
    if name is None:
        late = sorted(libraries - imports.loaded(module)[1])
        return f"mark it `# lazy: {late[0]}`" if late else "it is light: move it to the top of the module"
    if name == imports.START_UP:
        return None if module in at_start_up and not own <= at_start_up else "nothing is saved at start-up"
    if name not in imports.HEAVY:
        return f"{name} is not a heavy library"
    if name not in libraries:
        return f"it does not bring {name}"
    return f"{name} is imported with the module anyway" if name in imports.loaded(module)[1] else None


def test_imports_inside_functions_keep_a_heavy_library_out_of_start_up(at_start_up):
    faults = {
        f"{module}:{node.lineno} {ast.unparse(node)}": message
        for module in sorted(imports.MODULES)
        for node in imports.in_functions(module)
        if (message := fault(module, node, at_start_up))
    }
    assert faults == {}


def test_start_up_loads_no_heavy_library():
    for command in ("mar_st.cli", "medteb_mteb.cli", "mar_st", "medteb_mteb"):
        assert imports.loaded(command)[1] == frozenset()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import torch", "mark it `# lazy: torch`"),
        ("import torch  # lazy: torch", None),
        ("import torch  # lazy: numpy", "it does not bring numpy"),
        ("import json  # lazy: json", "json is not a heavy library"),
        ("import json", "it is light"),
        ("import numpy  # lazy: numpy", "numpy is imported with the module anyway"),
        ("from mar_st.model.mar import MAR  # lazy: torch", None),
        ("from mar_st import MAR  # lazy: torch", None),
        ("from mar_st.errors import MarError  # lazy: torch", "it does not bring torch"),
        ("from mar_st.errors import MarError  # lazy: start-up", "nothing is saved at start-up"),
    ],
)
def test_wrong_imports_inside_functions_are_found(source, expected, at_start_up, tmp_path, monkeypatch):
    module = f"mar_st.{tmp_path.name}"  # a name of its own: what was read of it stays in caches
    file = tmp_path / "one.py"
    file.write_text(f"import numpy\ndef run():\n    {source}\n", encoding="utf-8")
    monkeypatch.setitem(imports.MODULES, module, file)
    (node,) = imports.in_functions(module)
    message = fault(module, node, at_start_up)
    assert message is None if expected is None else expected in message


def test_imports_have_no_cycles():
    """Without cycles every imported module is complete when it is imported."""
    graph = {
        module: {one for one in imports.direct(module)[0] if not f"{module}.".startswith(f"{one}.")}
        for module in imports.MODULES
    }
    TopologicalSorter(graph).prepare()  # raises CycleError


@pytest.mark.parametrize("package", ["mar_st", "medteb_mteb"])
def test_an_option_that_commands_share_is_declared_once(package):
    places = defaultdict(list)
    for module in sorted(imports.MODULES):
        if module.startswith(f"{package}.commands."):
            for node in ast.walk(imports.tree(module)):
                if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") == "Annotated":
                    places[ast.unparse(node)].append(f"{module}:{node.lineno}")
    assert len(places) > 50
    assert {option: where for option, where in places.items() if len(where) > 1} == {}
