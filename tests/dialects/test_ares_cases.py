"""Tests that each acceptance case of the AresJob specification has a test, in the file listed here."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

CASES_BY_FILE = {
    "dialects/test_ares_phases.py": range(1, 24),
    "dialects/test_ares_definitions.py": (*range(24, 39), 44, 49),
    "dialects/test_ares_lifecycle.py": (39, 40, 41, 42, 43, 45, 46, 50),
    "conformance/test_ares.py": (14, 15, 26, 37, 38, 41, 44, 46, 52),
    "operator/apis/ares/test_observer.py": (47,),
    "helper/test_initializer.py": (48, 49),
}


@pytest.mark.parametrize("file", CASES_BY_FILE)
def test_every_acceptance_case_is_in_its_file(file: str) -> None:
    text = (TESTS / file).read_text()
    numbers = {int(number) for number in re.findall(r"""["_](\d+)(?:\. |_|,| and )""", text)}
    numbers |= {int(number) for number in re.findall(r" and (\d+):", text)}
    assert set(CASES_BY_FILE[file]) <= numbers, sorted(set(CASES_BY_FILE[file]) - numbers)
