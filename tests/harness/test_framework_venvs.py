"""Environments of frameworks: identified by their content, created once, reported when missing."""

import re
from pathlib import Path

import pytest

from tests.support import framework_venvs
from tests.support.commands import REPOSITORY
from tests.support.framework_venvs import Environment

EVERY = framework_venvs.every()


@pytest.mark.parametrize("environment", EVERY, ids=lambda environment: environment.name)
def test_every_package_is_pinned_and_no_host_is_named(environment: Environment) -> None:
    lines = environment.requirements.read_text().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


def test_a_framework_without_requirements_has_no_environment() -> None:
    assert framework_venvs.of_framework("custom") is None
    assert framework_venvs.of_framework("jax") == Environment("jax")


def test_changed_requirements_use_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework_venvs, "REPOSITORY", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "examples" / "toy"
    folder.mkdir(parents=True)
    places = set()
    for version in ("1", "2", "1"):
        (folder / "requirements.txt").write_text(f"toy=={version}\n")
        places.add(Environment("toy").prefix)
    assert len(places) == 2
    assert all(place.is_relative_to(tmp_path / "cache") for place in places)
    assert not any(place.is_relative_to(REPOSITORY) for place in places)
    assert Environment("toy").missing.startswith("toy is not installed; ")


def test_environment_is_created_once_and_an_incomplete_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framework_venvs, "REPOSITORY", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "examples" / "toy"
    folder.mkdir(parents=True)
    (folder / "requirements.txt").write_text("")
    toy = Environment("toy")
    built: list[str] = []

    def make(self: Environment) -> None:
        assert not self.prefix.exists()
        self.prefix.mkdir(parents=True)
        built.append(self.name)

    monkeypatch.setattr(Environment, "_make", make)
    toy.prefix.mkdir(parents=True)  # what somebody left who was ended
    toy.install()
    toy.install()
    assert built == ["toy"]
    assert toy.missing == ""
