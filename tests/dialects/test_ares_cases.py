"""Where each acceptance case of AresJob's specification is tested, by its number."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

FOUND = {
    "dialects/test_ares_phases.py": range(1, 24),
    "dialects/test_ares_definitions.py": (*range(24, 39), 44, 49),
    "dialects/test_ares_life.py": (39, 40, 41, 42, 43, 45, 46, 50),
    "conformance/test_ares.py": (14, 15, 26, 37, 38, 41, 44, 46, 52),
    "operator/apis/ares/test_observer.py": (47,),
    "helper/test_initializer.py": (48, 49),
}


@pytest.mark.parametrize("file", FOUND)
def test_every_case_is_where_it_is_said_to_be(file: str) -> None:
    text = (TESTS / file).read_text()
    told = {int(number) for number in re.findall(r"""["_](\d+)(?:\. |_|,| and )""", text)}
    told |= {int(number) for number in re.findall(r" and (\d+):", text)}
    assert set(FOUND[file]) <= told, sorted(set(FOUND[file]) - told)
