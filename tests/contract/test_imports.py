"""Who may import whom, and that importing costs nothing: the contracts of pyproject.toml, and those it cannot state."""

import ast
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

PACKAGE = ROOT / "plugins" / "ptxbench"
HEAVY = ("cuda", "cupti", "flashinfer", "httpx", "litellm", "openai", "ray", "torch", "tvm_ffi")
"""Top-level modules that only a machine with a GPU or a key needs: imported inside the functions that use them."""

BESIDE_LITELLM = "ptxbench.models.litellm_guard"
"""The one module that stands beside a heavy one: what it defines derives from httpx's classes. Any other module that
imported it at once would fail here like one that imports httpx."""

LINT_IMPORTS = "import sys, importlinter.cli; sys.exit(importlinter.cli.lint_imports_command())"
IMPORT_EVERYTHING = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None  # importing it is an ImportError
import ptxbench
for module in pkgutil.walk_packages(ptxbench.__path__, "ptxbench."):
    if module.name not in ("ptxbench.__main__", "ptxbench.models.litellm_guard"):
        importlib.import_module(module.name)
        print(module.name)
"""


def run_python(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def imported_modules(tree: ast.Module) -> set[str]:
    """Every absolute module that a file imports, wherever in it. A relative import is named by its dots."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add("." * node.level + (node.module or ""))
    return found


def test_rooms_import_only_what_they_may_know():
    done = run_python(ROOT, LINT_IMPORTS, "--no-cache")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broken" in done.stdout


def test_a_forbidden_import_would_be_seen(tmp_path):
    """The contract holds because it is checked: one import upwards breaks it."""
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    copy = tmp_path / "plugins" / "ptxbench"
    for path in PACKAGE.rglob("*.py"):
        target = copy / path.relative_to(PACKAGE)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    with (copy / "records" / "base.py").open("a") as file:
        file.write("\nimport ptxbench.verdict\n")
    done = subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS, "--no-cache"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(copy.parent)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ptxbench.records.base -> ptxbench.verdict" in done.stdout


def test_every_module_can_be_imported_without_the_heavy_ones(tmp_path):
    done = run_python(tmp_path, IMPORT_EVERYTHING, *HEAVY)
    assert done.returncode == 0, done.stderr
    not_imported = {"ptxbench", "ptxbench.__main__", BESIDE_LITELLM}
    assert len(done.stdout.split()) == len(list(PACKAGE.rglob("*.py"))) - len(not_imported)


def test_the_sandbox_imports_the_standard_library_and_three_packages():
    """It is the program that runs beside a candidate: nothing in it may lead to the truth or to torch."""
    files = list((PACKAGE / "profiler" / "sandbox").glob("*.py"))
    names = set().union(*(imported_modules(ast.parse(path.read_text())) for path in files))
    beside = {".", *(f".{path.stem}" for path in files)}
    outside = {name.split(".")[0] for name in names - beside} - sys.stdlib_module_names
    assert outside == {"cuda", "cupti", "tvm_ffi"}
