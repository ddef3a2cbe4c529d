"""Tests for the kubelet's route of checkpoints: its answers, and who may use it."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.meta import ObjectMeta
from argosy.local.node.checkpoint_requests import CheckpointRequests, SecureRequests
from argosy.local.node.pod_types import Container, Pod, PodSpec
from argosy.local.node.settings import Settings
from argosy.local.node.shim_socket import ShimRequest
from argosy.wire.messages import HttpError, Request
from tests.support.servers import Server

POD = Pod(
    ObjectMeta(name="a", namespace="default", uid="u-1"),
    PodSpec(node_name="node-1", containers=[Container(name="main", image="local")]),
)


class Shims:
    """Stands in for the shims: records what it is asked for."""

    def __init__(self, problem: str = "", *, endless: bool = False) -> None:
        self.problem, self.endless = problem, endless
        self.requests: list[tuple[str, ShimRequest]] = []

    async def write(self, uid: str, request: ShimRequest) -> str:
        self.requests.append((uid, request))
        if self.endless:
            await asyncio.Event().wait()
        return self.problem


def requests(folder: Path, shims: Shims) -> CheckpointRequests:
    def find(namespace: str, name: str) -> Pod | None:
        return POD if (namespace, name) == ("default", "a") else None

    return CheckpointRequests(Settings(folder), find, shims.write)


@pytest.fixture
def criu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/sbin/criu"):
        path = tmp_path / "argosy" / "criu" / name
        path.parent.mkdir(parents=True)
        path.touch()


ANSWERS: dict[str, tuple[str, str, Shims, int, str]] = {
    "an unknown pod: 404": ("b/main", "", Shims(), 404, "pod does not exist"),
    "a pod of another node: 404": ("a/main", "node=node-2", Shims(), 404, "pod does not exist"),
    "an unknown container: 404": ("a/other", "", Shims(), 404, "container other does not exist"),
    "a timeout that is no number: 404": (
        "a/main",
        "timeout=x",
        Shims(),
        404,
        "cannot parse value of timeout",
    ),
    "the runtime's problem: 500": (
        "a/main",
        "node=node-1",
        Shims("a terminal"),
        500,
        "checkpointing of default/a/main failed (a terminal)",
    ),
    "longer than the timeout: 500": ("a/main", "timeout=1", Shims(endless=True), 500, "longer than 1 s"),
}


@pytest.mark.parametrize("case", ANSWERS)
@pytest.mark.usefixtures("criu")
async def test_problems_are_answered_as_by_a_kubelet(case: str, tmp_path: Path) -> None:
    path, query, shims, want_status, want_message = ANSWERS[case]
    request = Request("POST", f"/checkpoint/default/{path}", query, [])
    with pytest.raises(HttpError) as raised:
        await requests(tmp_path, shims).answer(request, "default", *path.split("/"))
    assert raised.value.status == want_status
    assert want_message in str(raised.value)


@pytest.mark.usefixtures("criu")
async def test_a_checkpoint_is_a_new_file_in_a_folder_of_root(tmp_path: Path) -> None:
    shims = Shims()
    request = Request("POST", "/checkpoint/default/a/main", "", [])
    paths = []
    for _ in range(2):
        response = await requests(tmp_path, shims).answer(request, "default", "a", "main")
        assert isinstance(response.body, bytes)
        paths += [Path(path) for path in msgspec.json.decode(response.body)["items"]]
        paths[-1].touch()
    assert len(set(paths)) == 2, "two in one second have different names"
    assert {path.match("checkpoint-a_default-main-2*Z.tar") for path in paths} == {True}
    assert (tmp_path / "checkpoints").stat().st_mode & 0o777 == 0o700
    uid, sent = shims.requests[0]
    assert (uid, sent["op"], sent["container"], sent["image"]) == ("u-1", "checkpoint", "main", "local")


async def test_without_criu_the_answer_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("argosy.checkpoint.drivers.criu.find_prefix", lambda: None)
    request = Request("POST", "/checkpoint/default/a/main", "", [])
    with pytest.raises(HttpError, match="scripts/criu") as raised:
        await requests(tmp_path, Shims()).answer(request, "default", "a", "main")
    assert raised.value.status == 500


@pytest.mark.usefixtures("criu")
async def test_only_users_that_may_create_checkpoints_of_the_node_get_one(
    local_apiserver: Server, tmp_path: Path
) -> None:
    """The users are ServiceAccounts, with the rights of one node, of another, and of none."""
    async with Client(Connection.from_kubeconfig(local_apiserver.kubeconfig)) as client:
        secure = SecureRequests(client, requests(tmp_path, Shims()))

        async def status(token: str, path: str = "/checkpoint/default/a/main", method: str = "POST") -> int:
            headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
            try:
                return (await secure.answer(Request(method, path, "", headers))).status
            except HttpError as error:
                return error.status

        tokens = {name: await _token(client, name, node) for name, node in _USERS.items()}
        assert {name: await status(token) for name, token in tokens.items()} == {
            "own": 200,
            "every": 200,
            "other": 403,
            "none": 403,
        }
        assert [await status(""), await status("invalid")] == [401, 401]
        assert await status(tokens["every"], "/checkpoint/default/b/main") == 404
        assert await status(tokens["own"], "/checkpoint/default/b/main") == 403
        assert await status(tokens["every"], "/pods", "GET") == 404


_USERS = {"own": "node-1", "every": "", "other": "node-2", "none": None}


async def _token(client: Client, name: str, node: str | None) -> str:
    """Create a ServiceAccount that may create checkpoints on the node, or on every node, or on none."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    await client.request("POST", accounts, body={"metadata": {"name": name}})
    if node is not None:
        rule: dict[str, object] = {"apiGroups": [""], "resources": ["nodes/checkpoint"], "verbs": ["create"]}
        rule |= {"resourceNames": [node]} if node else {}
        role = {"metadata": {"name": f"checkpoint-{name}"}, "rules": [rule]}
        await client.request("POST", f"{rbac}/clusterroles", body=role)
        binding = {
            "metadata": {"name": f"checkpoint-{name}"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": f"checkpoint-{name}",
            },
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": "default"}],
        }
        await client.request("POST", f"{rbac}/clusterrolebindings", body=binding)
    created = await client.request("POST", f"{accounts}/{name}/token", body={"spec": {}})
    token: str = msgspec.json.decode(created)["status"]["token"]
    return token
