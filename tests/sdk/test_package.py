"""The SDK as a package: what it needs from the programs that import it."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import argosy_sdk

FOLDER = Path(argosy_sdk.__file__).parent
MODULES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.name)
def test_modules_have_the_syntax_of_python_3_8(module: Path) -> None:
    ast.parse(module.read_text(), feature_version=(3, 8))


def test_it_imports_the_standard_library_only() -> None:
    program = (
        "import sys, argosy_sdk, argosy_sdk.agreement\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    )
    ran = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=FOLDER.parent, capture_output=True, text=True, check=True
    )
    assert set(ran.stdout.split()) <= {"__main__", "argosy_sdk"}


FUNCTIONS = [name for name in argosy_sdk.__all__ if inspect.isfunction(getattr(argosy_sdk, name))]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_has_an_example_and_types(name: str) -> None:
    function = getattr(argosy_sdk, name)
    assert "\n\n        " in (function.__doc__ or ""), "an indented example"
    assert inspect.signature(function).return_annotation is not inspect.Signature.empty


def test_type_checkers_may_use_its_types() -> None:
    assert (FOLDER / "py.typed").exists()
