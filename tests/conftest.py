"""The servers that tests run against.

The judge is a real kube-apiserver. Where it has not been built its tests are skipped and the reason stands in
the summary; with ARGOSY_REQUIRE_ALL=1, as in continuous integration, they fail instead. A server is started
by the first test of a process that asks for it and ends with that process.
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

from tests.support import assets, differential, servers, targets
from tests.support.assets import Programs
from tests.support.cluster import lifecycle
from tests.support.cluster.components import Settings
from tests.support.cluster.running import RunningCluster
from tests.support.cluster.traces import Inside, inside, left, traces
from tests.support.killable_apiserver import HurtServer, hurt_server
from tests.support.mpi_venvs import Launcher, launchers
from tests.support.servers import Server
from tests.support.waiting import retry_until

REQUIRE_ALL = os.environ.get("ARGOSY_REQUIRE_ALL") == "1"
LAUNCHERS = launchers()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--on",
        choices=("local", "cluster"),
        default="local",
        help="what the conformance suite runs on: the local control plane, or a real cluster",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that use the judge carry its marker, whether they say so or not; root tests need root.

    One that goes on from another says so in the account that `scripts/test` reads.
    """
    for item in items:
        if item.get_closest_marker("story"):
            item.user_properties.append(("story", "true"))
        names = getattr(item, "fixturenames", ())
        if {"real_apiserver", "own_apiserver", "hurt"}.intersection(names):
            item.add_marker(pytest.mark.judge)
        if item.get_closest_marker("root") and os.geteuid() != 0 and not REQUIRE_ALL:
            item.add_marker(pytest.mark.skip(reason="needs root"))


def pytest_configure(config: pytest.Config) -> None:
    """Skips are always told with their reasons."""
    # Otherwise pytest-asyncio asks for the current loop, gets one made for it, and leaves it unclosed.
    asyncio.set_event_loop(None)
    reported = str(config.option.reportchars)
    if "s" not in reported and "a" not in reported.lower():
        config.option.reportchars = reported + "s"


def pytest_unconfigure(config: pytest.Config) -> None:
    """The cluster that the processes of this run shared ends with the one that started them."""
    if config.getoption("--on") == "cluster" and not hasattr(config, "workerinput"):
        targets.end_cluster(os.getpid())


@pytest.fixture(scope="session")
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of Unix sockets."""
    with TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def real_apiserver(short_folder: Path) -> Iterator[Server]:
    """A real kube-apiserver with etcd."""
    try:
        assets.find("etcd")
        assets.find("kube-apiserver")
    except assets.MissingAsset as error:
        _missing(str(error))
    with servers.real_apiserver(short_folder / "real") as server:
        yield server


@pytest.fixture
def own_apiserver() -> Iterator[Server]:
    """A real kube-apiserver with etcd that no other test uses."""
    try:
        assets.find("etcd")
        assets.find("kube-apiserver")
    except assets.MissingAsset as error:
        _missing(str(error))
    with (
        TemporaryDirectory(prefix="argosy-", ignore_cleanup_errors=True) as folder,
        servers.real_apiserver(Path(folder) / "own") as server,
    ):
        yield server


@pytest.fixture(scope="session")
def hurt() -> Iterator[HurtServer]:
    """A real kube-apiserver with etcd that tests may kill and start again."""
    try:
        assets.find("etcd")
        assets.find("kube-apiserver")
    except assets.MissingAsset as error:
        _missing(str(error))
    with TemporaryDirectory(prefix="argosy-") as folder, hurt_server(Path(folder) / "hurt") as server:
        yield server


@pytest.fixture(scope="session")
def local_apiserver(short_folder: Path) -> Iterator[Server]:
    """Our own API server, as a process of its own."""
    with servers.local_apiserver(short_folder / "local") as server:
        yield server


@pytest.fixture(params=["kubernetes", "local"])
def api(request: pytest.FixtureRequest) -> Server:
    """Each of the two servers in turn: for tests that must hold against both."""
    server: Server = request.getfixturevalue(
        "real_apiserver" if request.param == "kubernetes" else "local_apiserver"
    )
    return server


@pytest.fixture(scope="session")
def cluster_programs(request: pytest.FixtureRequest) -> Programs:
    """The programs of a real cluster, of the minor version that a test names or the newest."""
    programs = Programs(getattr(request, "param", assets.DEFAULT))
    if os.environ.get("ARGOSY_TEST_KUBECONFIG"):
        pytest.skip("ARGOSY_TEST_KUBECONFIG is set: no cluster of our own")
    try:
        for program in ("kubelet", "containerd", "nft", "coredns"):
            programs.find(program)
    except assets.MissingAsset as error:
        _missing(str(error))
    return programs


@pytest.fixture(scope="session")
def cluster(cluster_programs: Programs) -> Iterator[RunningCluster]:
    """One real cluster of two nodes for all tests. That it leaves nothing is tested where it ends."""
    with TemporaryDirectory(prefix="argosy-") as parent:
        folder = Path(parent) / "cluster"
        before = traces()
        try:
            settings = Settings(cluster_programs.minor, nodes=2, audit="Metadata", node_grace=8)
            running = RunningCluster.up(folder, settings)
            yield running
            seen = inside(running.state)
            assert len(seen.processes) > 10
        finally:
            lifecycle.down(folder)
        assert not folder.exists()
        # A killed process is in its namespace of processes until the machine's first process has noticed.
        retry_until(lambda: left(seen) == Inside({}, frozenset()), 60)
        assert traces() == before
        lifecycle.down(folder)


@pytest.fixture
def namespace(api: Server) -> str:
    """A fresh namespace in `api`, with the ServiceAccount `default` that pods need."""
    name = fresh_name()
    make_namespace(api, name)
    return name


@pytest.fixture
def compare(real_apiserver: Server, local_apiserver: Server) -> Callable[[Sequence[differential.Step]], None]:
    """Send the same steps to the judge and to our server, in a fresh namespace; they must answer the same."""

    def run(steps: Sequence[differential.Step]) -> None:
        if diff := differential.difference(real_apiserver, local_apiserver, fresh_name(), steps):
            pytest.fail(f"\n{diff}", pytrace=False)

    return run


@pytest.fixture(params=LAUNCHERS.values(), ids=list(LAUNCHERS))
def launcher(request: pytest.FixtureRequest) -> Launcher:
    """Each implementation of MPI in turn."""
    found = request.param
    assert isinstance(found, Launcher)
    if found.missing:
        _missing(found.missing)
    return found


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
            if error.code != 409:  # a server may furnish its namespaces itself
                raise


def _missing(reason: str) -> NoReturn:
    if REQUIRE_ALL:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
