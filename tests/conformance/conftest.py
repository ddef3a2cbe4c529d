"""Fixtures of the conformance suite, which passes on the local control plane and on a real cluster (`--on`).

Tests get a `user`, which is the same on both. On a real cluster all test processes share one cluster; a file
that disturbs it has the marker `exclusive` and runs while no other file does.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import examples, targets
from tests.support.assets import MissingAsset
from tests.support.targets import Target
from tests.support.user import User, user_in_namespace

HERE = f"{Path(__file__).parent}/"
REQUIRE_ALL = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"
TEST_SECONDS = 240


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the suite into the stage of its target, and files that need it for themselves last."""
    on_cluster = config.getoption("--on") == "cluster"
    items.sort(key=lambda item: item.get_closest_marker("exclusive") is not None)
    for item in items:
        if not str(item.path).startswith(HERE):
            continue
        item.add_marker(pytest.mark.conformance)
        # The start of a cluster, and the wait for exclusive use of it, do not count.
        item.add_marker(pytest.mark.timeout(TEST_SECONDS, func_only=True))
        item.add_marker(pytest.mark.cluster if on_cluster else pytest.mark.e2e)
        if on_cluster and item.get_closest_marker("long_on_cluster"):
            item.add_marker(pytest.mark.long)
        if on_cluster and os.geteuid() != 0 and "ARGOSY_TEST_KUBECONFIG" not in os.environ:
            item.add_marker(pytest.mark.skip(reason="a real cluster needs root"))


@pytest.fixture(scope="session")
def owner() -> int:
    """The pid of the process that started this test run; with pytest-xdist the parent of the workers."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@pytest.fixture(scope="session")
def target(pytestconfig: pytest.Config, owner: int) -> Iterator[Target]:
    if pytestconfig.getoption("--on") == "local":
        with targets.local_target() as local:
            yield local
        return
    try:
        shared = targets.cluster_target(owner)
    except MissingAsset as error:
        pytest.fail(str(error), pytrace=False) if REQUIRE_ALL else pytest.skip(str(error))
    yield shared


@pytest.fixture(scope="module", autouse=True)
def _cluster_access(request: pytest.FixtureRequest, owner: int) -> Iterator[None]:
    """Files that disturb the cluster get it for themselves."""
    if request.config.getoption("--on") == "local":  # every process has its own control plane
        yield
        return
    with targets.cluster_access(owner, exclusive=request.node.get_closest_marker("exclusive") is not None):
        yield


@pytest.fixture(scope="module")
def user(target: Target, _cluster_access: None) -> Iterator[User]:
    with user_in_namespace(target, f"t{secrets.token_hex(3)}") as user:
        yield user


@pytest.fixture
def sshd() -> None:
    """Skip or fail without an sshd on the machine, which pods mount."""
    if reason := examples.missing("examples/ares/mpi.yaml"):
        pytest.fail(reason, pytrace=False) if REQUIRE_ALL else pytest.skip(reason)
