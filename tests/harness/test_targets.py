"""Files of tests that hurt the shared cluster run alone."""

import fcntl
import os
import tempfile
import threading
from pathlib import Path

import pytest

from tests.support import targets
from tests.support.targets import ClusterTarget, ForeignCluster
from tests.support.waiting import wait_for


class Visitor:
    """A file of tests that takes its turn in a thread of its own, and leaves when told."""

    def __init__(self, owner: int, *, alone: bool) -> None:
        self.inside, self.leaving = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._visit, args=(owner, alone))
        self.thread.start()

    def _visit(self, owner: int, alone: bool) -> None:
        with targets.cluster_access(owner, alone=alone):
            self.inside.set()
            self.leaving.wait(30)

    def leave(self) -> None:
        self.leaving.set()
        self.thread.join(30)


def locked(path: Path) -> bool:
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_one_alone_waits_for_the_others_and_lets_nobody_in_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, owner = tmp_path, os.getpid()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    first, second = (Visitor(owner, alone=False) for _ in range(2))
    wait_for(lambda: first.inside.is_set() and second.inside.is_set(), "two are in at once")
    alone = Visitor(owner, alone=True)
    wait_for(lambda: locked(folder / f"argosy-shared-{owner}.door"), "it waits at the door")
    assert not alone.inside.is_set()
    late = Visitor(owner, alone=False)
    first.leave()
    assert not late.inside.wait(0.2)
    assert not alone.inside.is_set(), "the second is still there"
    second.leave()
    wait_for(alone.inside.is_set, "it is alone")
    assert not late.inside.wait(0.2)
    alone.leave()
    wait_for(late.inside.is_set, "the last one is let in")
    late.leave()
    targets.end_cluster(owner)
    assert not list(folder.iterdir())


def test_a_users_own_cluster_is_used_and_not_hurt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARGOSY_TEST_KUBECONFIG", "/mine")
    target = targets.cluster_target(os.getpid())
    assert isinstance(target, ClusterTarget)
    assert str(target.kubeconfig) == "/mine"
    with pytest.raises(ForeignCluster):
        target.kill_apiserver()
