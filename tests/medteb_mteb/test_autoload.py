"""The import hook, with a fake mteb: no test here has to import the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from importlib.metadata import distribution
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PTH = REPOSITORY / "medteb_autoload.pth"

# What every process below starts with: the .pth line as site.py executes it, and a registry that only counts.
PRELUDE = """
import json, sys, types, warnings
registered = []
registry = types.ModuleType("medteb_mteb.plugin")
registry.register = lambda: registered.append(sys.modules["mteb"].READY)
sys.modules["medteb_mteb.plugin"] = registry
before = set(sys.modules)
exec(open({pth!r}).read())
added = sorted(set(sys.modules) - before)
"""


@pytest.fixture
def run(tmp_path: Path):
    """Runs code in a bare interpreter (-S: no site-packages) that has a stand-in for mteb on its path."""
    (tmp_path / "mteb").mkdir()
    (tmp_path / "mteb/__init__.py").write_text(
        "READY = False\nimport os\nif 'BREAK' in os.environ: raise ValueError('broken')\nREADY = True\n"
    )

    def run(code: str, *, options: tuple[str, ...] = (), package: bool = True, **environment: str) -> str:
        paths = [str(tmp_path), *([str(REPOSITORY / "src")] if package else [])]
        env = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(paths), **environment}
        script = PRELUDE.format(pth=str(PTH)) + textwrap.dedent(code)
        done = subprocess.run(
            [sys.executable, "-S", *options, "-c", script],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip() + done.stderr.strip()

    return run


def test_registers_once_and_only_after_mteb_has_run(run):
    out = run(
        "print(registered, end=' '); import mteb; print(registered, end=' '); import mteb; print(registered)"
    )
    assert out == "[] [True] [True]"


def test_loads_nothing_but_itself_at_start(run):
    added = json.loads(run("print(json.dumps(added))"))
    always_there = {"os", "os.path", "posixpath", "genericpath", "stat", "_stat", "_collections_abc"}
    assert set(added) - always_there == {"__future__", "medteb_mteb", "medteb_mteb._autoload"}


def test_survives_a_missing_package(run):
    assert run("import mteb; print(mteb.READY, registered, 'medteb_mteb' in sys.modules)", package=False) == (
        "True [] False"
    )


def test_can_be_switched_off_but_an_explicit_import_registers(run):
    code = (
        "import mteb; print(registered, 'medteb_mteb' in sys.modules); import medteb_mteb; print(registered)"
    )
    assert run(code, MEDTEB_AUTOLOAD="0").split("\n") == ["[] False", "[True]"]


def test_explicit_import_before_mteb_arms_the_hook(run):
    code = "import medteb_mteb; print(registered, end=' '); import mteb; print(registered)"
    assert run(code, MEDTEB_AUTOLOAD="0") == "[] [True]"


def test_looking_for_mteb_does_not_register(run):
    look = "import importlib.util as u; print(u.find_spec('mteb').name, registered);"
    assert run(look + "import mteb; print(registered)").split("\n") == ["mteb []", "[True]"]


def test_leaves_no_trace_on_mteb(run):
    code = """
    import mteb, importlib.machinery as m
    loader = mteb.__spec__.loader
    print(type(loader) is m.SourceFileLoader, "exec_module" in vars(loader), len(sys.meta_path))
    """
    plain = run("import importlib.machinery; print(len(sys.meta_path))", MEDTEB_AUTOLOAD="0")
    assert run(code) == f"True False {plain}"


def test_mteb_that_fails_to_import_can_be_imported_again(run):
    code = """
    import os
    try:
        import mteb
    except ValueError as error:
        print(error, registered)
    del os.environ["BREAK"]
    import mteb
    print(registered)
    """
    assert run(code, BREAK="1").split("\n") == ["broken []", "[True]"]


FAIL = """
def fail(): raise RuntimeError("mteb has moved its furniture")
registry.register = fail
"""


def test_failure_leaves_mteb_working_and_warns_once(run):
    code = FAIL + textwrap.dedent("""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import mteb
    print(mteb.READY, [(w.category.__name__, str(w.message)) for w in caught])
    """)
    out = run(code)
    assert out.startswith("True [('RuntimeWarning', 'medteb could not register")
    assert out.count("RuntimeWarning") == 1
    assert "mteb works without them. RuntimeError: mteb has moved its furniture" in out


def test_failure_does_not_break_mteb_where_warnings_are_errors(run):
    out = run(FAIL + "import mteb; print(mteb.READY)", options=("-W", "error"))
    assert out.startswith("True")
    assert "mteb has moved its furniture" in out


PULLS_IN = "assert not REGISTERED\nimport mteb\nassert not REGISTERED\n"


@pytest.fixture
def with_modules(tmp_path):
    """Code that adds modules of the given sources to medteb_mteb, for the start of a process."""

    def with_modules(**sources: str) -> str:
        for name, source in sources.items():
            known = "from __main__ import registered as REGISTERED\n"
            (tmp_path / f"{name}.py").write_text(known + source, encoding="utf-8")
        return f"import medteb_mteb; medteb_mteb.__path__.append({str(tmp_path)!r})\n"

    return with_modules


def test_waits_for_the_outermost_module(run, with_modules):
    outer = "import medteb_mteb.inner\nassert not REGISTERED\n"
    code = with_modules(inner=PULLS_IN, outer=outer)
    assert run(f"{code}import medteb_mteb.outer; print(registered)") == "[True]"


def test_a_module_that_fails_after_importing_mteb_does_not_stop_it(run, with_modules):
    code = with_modules(broken=PULLS_IN + "raise ValueError('broken')\n")
    code += "try:\n    import medteb_mteb.broken\nexcept ValueError as error:\n    print(error, registered)"
    assert run(code) == "broken [True]"


def test_the_installed_line_is_the_one_tested_here():
    files = [file for file in distribution("medteb").files or [] if file.name == PTH.name]
    assert len(files) == 1, "pip install did not place medteb_autoload.pth"
    assert files[0].locate().read_text() == PTH.read_text()
    assert PTH.read_text().count("\n") == 1  # site.py executes line by line
