"""Fixtures for the servers that tests run against.

The reference is a real kube-apiserver. Where it has not been built its tests are skipped with the reason;
with ARGOSY_REQUIRE_ALL=1, as in continuous integration, they fail instead. A server is started by the first
test of a process that uses it, and stops with that process.
"""

import asyncio
import json
import os
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

import pytest

from tests.support import assets, crd_steps, differential, servers, targets
from tests.support.assets import Programs
from tests.support.cluster import lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.running import RunningCluster
from tests.support.cluster.traces import Contents, cluster_contents, machine_state, remaining
from tests.support.killable_apiserver import KillableApiServer, running_killable_apiserver
from tests.support.mpi_venvs import Launcher
from tests.support.parameters import API_SERVERS, MPI_LAUNCHERS
from tests.support.servers import Server
from tests.support.waiting import retry_until

REQUIRE_ALL = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=("local", "cluster"),
        default="local",
        help="what the conformance suite runs on: the local control plane, or a real cluster",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use the reference apiserver, and skip those that need root where there is none.

    The marker `sequential` becomes a property in the JUnit file, which `scripts/test` reads.
    """
    for item in items:
        if item.get_closest_marker("sequential"):
            item.user_properties.append(("sequential", "true"))
        names = getattr(item, "fixturenames", ())
        if {"real_apiserver", "own_apiserver", "file_apiserver", "killable_apiserver"}.intersection(names):
            item.add_marker(pytest.mark.reference)
        if item.get_closest_marker("root") and os.geteuid() != 0 and not REQUIRE_ALL:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_configure(config: pytest.Config) -> None:
    """Print the reasons of skipped tests, whatever the options."""
    # Without this pytest-asyncio asks for the current loop, gets a new one, and leaves it unclosed.
    asyncio.set_event_loop(None)
    reported = str(config.option.reportchars)
    if "s" not in reported and "a" not in reported.lower():
        config.option.reportchars = reported + "s"


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the cluster that the worker processes of this run shared."""
    if config.getoption("--on") == "cluster" and not hasattr(config, "workerinput"):
        targets.end_cluster(os.getpid())


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets in it."""
    with TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def real_apiserver(short_folder: Path) -> Iterator[Server]:
    """A real kube-apiserver with etcd."""
    _require("etcd", "kube-apiserver")
    with servers.real_apiserver(short_folder / "real") as server:
        yield server


def _new_apiserver() -> Iterator[Server]:
    _require("etcd", "kube-apiserver")
    with (
        TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder,
        servers.real_apiserver(Path(folder) / "own") as server,
    ):
        yield server


@pytest.fixture
def own_apiserver() -> Iterator[Server]:
    """A real kube-apiserver with etcd that no other test uses."""
    yield from _new_apiserver()


@pytest.fixture(scope="module")
def file_apiserver() -> Iterator[Server]:
    """A real kube-apiserver with etcd that only the tests of one file use."""
    yield from _new_apiserver()


@pytest.fixture(scope="session")
def killable_apiserver() -> Iterator[KillableApiServer]:
    """A real kube-apiserver with etcd that tests may kill and start again."""
    _require("etcd", "kube-apiserver")
    with (
        TemporaryDirectory(prefix="argosy-") as folder,
        running_killable_apiserver(Path(folder) / "server") as server,
    ):
        yield server


@pytest.fixture(scope="session")
def local_apiserver(short_folder: Path) -> Iterator[Server]:
    """Our own API server, as a process of its own."""
    with servers.local_apiserver(short_folder / "local") as server:
        yield server


@pytest.fixture(params=API_SERVERS)
def api(request: pytest.FixtureRequest) -> Server:
    """The reference apiserver, and in `--long` also the local one, for tests that must pass on both."""
    server: Server = request.getfixturevalue(
        "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    )
    return server


@pytest.fixture(scope="session")
def cluster_programs(request: pytest.FixtureRequest) -> Programs:
    """The programs of a real cluster, of the minor version in the test's parameter or of the default one."""
    programs = Programs(getattr(request, "param", assets.DEFAULT))
    if os.environ.get("ARGOSY_TEST_KUBECONFIG"):
        pytest.skip("ARGOSY_TEST_KUBECONFIG is set: no cluster is started")
    _require("kubelet", "containerd", "nft", "coredns", programs=programs)
    return programs


@pytest.fixture(scope="session")
def cluster(cluster_programs: Programs) -> Iterator[RunningCluster]:
    """A real cluster of two nodes, one per test process. Its teardown checks that nothing of it is left.

    Clusters of other test processes run on the same machine, so the check ignores them.
    """
    with TemporaryDirectory(prefix="argosy-") as parent:
        folder = Path(parent) / "cluster"
        before = machine_state()
        try:
            settings = Settings(cluster_programs.minor, nodes=2, audit="Metadata", node_grace=8)
            running = RunningCluster.up(folder, settings)
            yield running
            slot, contents = running.state.layout.slot, cluster_contents(running.state)
            assert len(contents.processes) > 10
        finally:
            lifecycle.down(folder)
        assert not folder.exists()
        # A killed process stays in its PID namespace until it is reaped.
        retry_until(lambda: remaining(contents) == Contents({}, frozenset()), 60)
        assert machine_state(slot) == before
        lifecycle.down(folder)


@pytest.fixture
def namespace(api: Server) -> str:
    """A fresh namespace in `api`, with the ServiceAccount `default` that pods need."""
    name = fresh_name()
    make_namespace(api, name)
    return name


@pytest.fixture(scope="session")
def shared_definition(real_apiserver: Server, local_apiserver: Server) -> None:
    """The kind Widget on both apiservers, for the cases that can share its definition."""
    for server in (real_apiserver, local_apiserver):
        with differential.Caller(server) as caller:
            differential.replay(caller, crd_steps.SHARED, crd_steps.DEFINED, prepared=())


@pytest.fixture
def compare(
    real_apiserver: Server, local_apiserver: Server, request: pytest.FixtureRequest
) -> Callable[[Sequence[differential.Step]], None]:
    """Send the same steps to both apiservers, each in a fresh namespace; the answers must be equal."""

    def run(steps: Sequence[differential.Step]) -> None:
        if crd_steps.can_share_definition(steps):
            request.getfixturevalue("shared_definition")
            steps = crd_steps.with_shared_definition(steps)
        if diff := differential.difference(real_apiserver, local_apiserver, fresh_name(), steps):
            pytest.fail(f"\n{diff}", pytrace=False)

    return run


@pytest.fixture(params=MPI_LAUNCHERS)
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """An implementation of MPI; all of them in `--long`."""
    launcher = request.param
    assert isinstance(launcher, Launcher)
    if launcher.missing:
        _missing(launcher.missing)
    return launcher


def fresh_name() -> str:
    return f"t{secrets.token_hex(4)}"


def make_namespace(server: Server, name: str) -> None:
    account = {"metadata": {"name": "default"}}
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": name}}),
        (f"/api/v1/namespaces/{name}/serviceaccounts", account),
    ):
        request = urllib.request.Request(
            server.url + path,
            data=json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"},
        )
        context = ssl.create_default_context(cafile=str(server.ca_file))
        try:
            with urllib.request.urlopen(request, context=context, timeout=10):
                pass
        except urllib.error.HTTPError as error:
            if error.code != 409:  # the server may create the ServiceAccount itself
                raise


def _require(*names: str, programs: Programs = Programs()) -> None:
    try:
        for name in names:
            programs.find(name)
    except assets.MissingAsset as error:
        _missing(str(error))


def _missing(reason: str) -> NoReturn:
    if REQUIRE_ALL:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
