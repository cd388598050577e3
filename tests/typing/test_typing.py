"""What types say at run time as well; what they say to type checkers is in users_code.py, for `make lint`."""

import ast
import dataclasses
import inspect
import sys
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import psofed
from psofed.common.fingerprint import function_digest
from psofed.parts.registry import FAMILIES

pytestmark = [pytest.mark.common, pytest.mark.parts]

FloatArray = NDArray[np.float64]


def declared_arguments(cls: type) -> list[str]:
    """The arguments that type checkers are told of."""
    tree = ast.parse(inspect.getsource(sys.modules[cls.__module__]))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == cls.__name__)
    functions = [node for node in ast.walk(body) if isinstance(node, ast.FunctionDef)]
    return [argument.arg for argument in next(f for f in functions if f.name == "__init__").args.kwonlyargs]


@pytest.mark.parametrize("cls", [psofed.Scenario, psofed.Selection, psofed.Data])
def test_type_checkers_are_told_of_exactly_the_fields_that_there_are(cls: type) -> None:
    assert declared_arguments(cls) == [field.name for field in dataclasses.fields(cls)]


def test_every_family_can_be_imported_by_type_checkers_too() -> None:
    package = Path(psofed.__file__).parent
    assert {path.stem for path in package.glob("*.pyi")} == {"__init__", *FAMILIES.values()}


def test_the_package_says_that_it_is_typed() -> None:
    assert files("psofed").joinpath("py.typed").is_file()


def test_code_that_names_a_kind_of_array_has_a_digest() -> None:
    def make() -> object:
        def inner(x: FloatArray) -> FloatArray:
            return x

        return inner

    assert function_digest(make) == function_digest(make)
