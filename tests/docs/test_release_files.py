"""What a release is made from agrees with itself."""

import ast
import doctest
import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import pytest

import psofed

pytestmark = pytest.mark.docs

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "release" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.+!]+", line) for line in kept)
    names = {line.partition("==")[0] for line in kept}
    wanted = {re.match(r"[\w-]+", text)[0] for text in PROJECT["dependencies"]}
    assert wanted <= names, f"run `make constraints`: {wanted - names}"


def test_the_citation_has_this_version_and_the_papers_doi() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {psofed.__version__}" in text
    doi = PROJECT["urls"]["Paper"].removeprefix("https://doi.org/")
    assert f"doi: {doi}" in text


def test_workflows_try_every_python_that_is_promised() -> None:
    text = (ROOT / ".github" / "workflows" / "checks.yml").read_text(encoding="utf-8")
    tried = re.findall(r'"(3\.\d+)"', re.search(r"python: \[(.*?)\]", text)[1])
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert tried == promised
    assert PROJECT["requires-python"] == f">={promised[0]}"


def test_examples_of_the_script_for_versions_hold() -> None:
    spec = importlib.util.spec_from_file_location("versions", ROOT / "release" / "versions.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert doctest.testmod(module).failed == 0


def test_what_the_core_imports_is_declared() -> None:
    """A plain installation has nothing else: another package's dependency may be gone with its next version."""
    source, optional = ROOT / "src" / "psofed", {"federation", "explore"}
    declared = {re.match(r"[\w-]+", line)[0] for line in PROJECT["dependencies"]}
    declared |= {"llvmlite", "markupsafe", "psofed"}  # part of what Numba and Jinja offer
    for path in source.rglob("*.py"):
        inside = path.relative_to(source).parts
        if inside[0] in optional or inside[-1] in ("sklearn.py", "river.py"):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:  # what is imported when the module is
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            for name in (name.partition(".")[0] for name in names):
                assert name in sys.stdlib_module_names or name in declared, f"{path.name} imports {name}"
