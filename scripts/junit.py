"""Reads the JUnit XML that pytest writes: skip reasons, failed tests, the slowest files."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree


def skip_reasons(report: Path) -> list[str]:
    """The reason of each skipped test."""
    return [skip.get("message", "no reason given") for skip in _parse(report).iter("skipped")]


def failed_tests(report: Path, root: Path) -> list[str]:
    """The failed tests as pytest takes them on its command line, each once.

    A test with the property `sequential` depends on the tests before it in its file, so the whole file is
    named instead.
    """
    names = [
        _node_id(case, root, whole_file=case.find("properties/property[@name='sequential']") is not None)
        for case in _parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return list(dict.fromkeys(names))


def slowest_files(reports: Iterable[Path], root: Path, count: int) -> list[tuple[float, str]]:
    """The files whose tests took longest in total, with their seconds, longest first."""
    seconds: defaultdict[str, float] = defaultdict(float)
    for report in filter(Path.exists, reports):
        for case in _parse(report).iter("testcase"):
            seconds[_node_id(case, root, whole_file=True)] += float(case.get("time", 0))
    return sorted(((taken, file) for file, taken in seconds.items()), reverse=True)[:count]


def _parse(report: Path) -> ElementTree.Element:
    return ElementTree.parse(report).getroot()  # noqa: S314 - written by pytest of the same run


def _node_id(case: ElementTree.Element, root: Path, *, whole_file: bool) -> str:
    """The node id of a case with the class name `tests.engine.test_cache.TestPut`."""
    parts, name = case.get("classname", "").split("."), case.get("name", "")
    for length in range(len(parts), 0, -1):
        file = "/".join(parts[:length]) + ".py"
        if (root / file).exists():
            return file if whole_file else "::".join([file, *parts[length:], name])
    return name
