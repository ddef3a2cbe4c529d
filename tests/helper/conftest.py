"""A pod for remote exec, with every shell that it supports."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fake_kubectl import FakePod, Shell, shells
from tests.support.waiting import wait_for


@pytest.fixture(autouse=True)
def _no_signal_is_ignored() -> Iterator[None]:
    """Processes that tests start get all signals, also if the tests run in the background or under nohup."""
    numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture(scope="session")
def installed_shells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Shell]:
    return shells(tmp_path_factory.mktemp("shells"))


OTHERS = [pytest.param(name, marks=pytest.mark.long) for name in ("busybox", "bash")]


@pytest.fixture(params=["dash", *OTHERS])
def shell(request: pytest.FixtureRequest, installed_shells: dict[str, Shell]) -> Shell:
    """A shell that remote exec supports, with its programs."""
    name = str(request.param)
    if name not in installed_shells:
        reason = f"{name} is not installed; ARGOSY_REQUIRE_ALL=1 scripts/test installs it"
        if os.environ.get("ARGOSY_REQUIRE_ALL") == "1":
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return installed_shells[name]


@pytest.fixture
def fake_pod(tmp_path: Path, shell: Shell) -> Iterator[FakePod]:
    pod = FakePod(tmp_path / "pod", shell)
    yield pod
    pod.clean()


@pytest.fixture
def pod(fake_pod: FakePod) -> Iterator[FakePod]:
    """A pod in which nothing may be left at the end, neither processes nor files."""
    yield fake_pod
    wait_for(lambda: not fake_pod.remaining(), lambda: str(fake_pod.remaining()))
    wait_for(lambda: not list(fake_pod.kept.iterdir()), lambda: str(fake_pod.leftovers()))
