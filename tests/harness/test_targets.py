"""Access to the shared cluster: shared by most files of tests, exclusive for those that disturb it."""

import fcntl
import os
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support import targets
from tests.support.targets import ClusterTarget, ForeignCluster
from tests.support.waiting import wait_for


class FileOfTests:
    """Uses the cluster in a thread of its own, until it is ended."""

    def __init__(self, owner: int, *, exclusive: bool) -> None:
        self.has_access, self._ending = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, args=(owner, exclusive))
        self._thread.start()

    def _run(self, owner: int, exclusive: bool) -> None:
        with targets.cluster_access(owner, exclusive=exclusive):
            self.has_access.set()
            self._ending.wait(30)

    def end(self) -> None:
        self._ending.set()
        self._thread.join(30)


def is_locked(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_exclusive_access_waits_for_current_users_and_precedes_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = os.getpid()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    first, second = (FileOfTests(owner, exclusive=False) for _ in range(2))
    wait_for(lambda: first.has_access.is_set() and second.has_access.is_set(), "both share the cluster")
    exclusive = FileOfTests(owner, exclusive=True)
    wait_for(lambda: is_locked(tmp_path / f"argosy-shared-{owner}.queue"), "exclusive access is queued")
    assert not exclusive.has_access.is_set()
    late = FileOfTests(owner, exclusive=False)
    first.end()
    assert not late.has_access.wait(0.2)
    assert not exclusive.has_access.is_set(), "the second file still runs"
    second.end()
    wait_for(exclusive.has_access.is_set, "exclusive access is granted")
    assert not late.has_access.wait(0.2)
    exclusive.end()
    wait_for(late.has_access.is_set, "the last file gets access")
    late.end()
    targets.end_cluster(owner)
    assert not list(tmp_path.iterdir())


def test_given_cluster_is_used_and_its_api_server_is_never_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_TEST_KUBECONFIG", "/mine")
    target = targets.cluster_target(os.getpid())
    assert isinstance(target, ClusterTarget)
    assert str(target.kubeconfig) == "/mine"
    with pytest.raises(ForeignCluster):
        target.kill_apiserver()
