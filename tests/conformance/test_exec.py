"""Commands that reconciles run in containers: what they answer, and that a killed operator loses none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace

from argosy.engine.client import Client
from argosy.engine.kubeconfig import Connection
from argosy.kinds.crd import crd_for
from argosy.kinds.kubernetes import CustomResourceDefinition, Namespace, Pod, ServiceAccount
from argosy.plan.actions import MAX_OUTPUT_BYTES, Exec, ExecResult, ExecStatus
from argosy.reconcile.pod_exec import PodExec
from tests.conftest import fresh_name
from tests.support.captured_logs import captured_lines
from tests.support.operator_harness import until_served
from tests.support.targets import IMAGE, Target
from tests.support.toy_kind import Toy
from tests.support.toy_operator import NEVER, Killing, ToyScene
from tests.support.user import User
from tests.support.waiting import connections_closed, until


@pytest.fixture
async def client(user: User) -> AsyncIterator[Client]:
    async with Client(Connection.from_kubeconfig(user.target.kubeconfig)) as client:
        yield client
    await connections_closed()


@pytest.fixture(scope="module")
def launcher(user: User) -> Exec:
    """A running pod, as the template of a command in it."""
    user.apply({"apiVersion": "v1", "kind": "Pod", **pod_body("launcher")})
    user.kubectl("wait", "--for=condition=Ready", "pod/launcher", "--timeout=60s")
    uid = user.kubectl("get", "pod", "launcher", "-o", "jsonpath={.metadata.uid}").stdout
    return Exec("key", "launcher", uid, "main", ("true",))


def pod_body(name: str) -> dict[str, object]:
    main = {"name": "main", "image": IMAGE, "command": ["sleep", "600"]}
    side = {**main, "name": "side", "env": [{"name": "WHO", "value": "side"}]}
    return {
        "metadata": {"name": name},
        "spec": {"terminationGracePeriodSeconds": 0, "containers": [side, main]},
    }


AWKWARD = "'\"`$HOME\\ \n\t;&|<>(){}[]*?~#%+=é€\N{GRINNING FACE} " * 50
ALL_BYTES = r"i=0; while [ $i -lt 256 ]; do printf \\$(printf %03o $i); i=$((i+1)); done"

DONE: dict[str, tuple[Exec, ExecResult]] = {
    # What differs from the template, and what is answered.
    "exit code 0, and no output": (
        Exec("key", "", "", "main", ("true",)),
        ExecResult("key", exit_code=0),
    ),
    "both outputs, and exit code 42": (
        Exec("key", "", "", "main", ("sh", "-c", "echo out; echo err >&2; exit 42")),
        ExecResult("key", exit_code=42, stdout=b"out\n", stderr=b"err\n"),
    ),
    "the named container is used": (
        Exec("key", "", "", "side", ("sh", "-c", "echo $WHO")),
        ExecResult("key", exit_code=0, stdout=b"side\n"),
    ),
    "stdin is sent and closed": (
        Exec("key", "", "", "main", ("sh", "-c", "cat; echo end"), stdin=b"a\0b\xff\n"),
        ExecResult("key", exit_code=0, stdout=b"a\0b\xff\nend\n"),
    ),
    "200 kB of stdin arrive whole": (
        Exec("key", "", "", "main", ("wc", "-c"), stdin=b"x" * 200_000),
        ExecResult("key", exit_code=0, stdout=b"200000\n"),
    ),
    "without stdin, a command that reads it ends": (
        Exec("key", "", "", "main", ("cat",)),
        ExecResult("key", exit_code=0),
    ),
    "all bytes arrive as they are": (
        Exec("key", "", "", "main", ("sh", "-c", ALL_BYTES)),
        ExecResult("key", exit_code=0, stdout=bytes(range(256))),
    ),
    "arguments of 2,000 bytes with quotes and newlines arrive as they are": (
        Exec("key", "", "", "main", ("sh", "-c", 'printf %s "$1"', "sh", AWKWARD)),
        ExecResult("key", exit_code=0, stdout=AWKWARD.encode()),
    ),
    "of 1.2 MB of output the end is kept": (
        Exec("key", "", "", "main", ("sh", "-c", "head -c 1200000 /dev/zero | tr '\\0' x; echo end; exit 5")),
        ExecResult("key", exit_code=5, stdout=b"x" * (MAX_OUTPUT_BYTES - 4) + b"end\n"),
    ),
}


@pytest.mark.parametrize(("command", "want"), DONE.values(), ids=DONE.keys())
async def test_answers_of_commands(
    user: User, client: Client, launcher: Exec, command: Exec, want: ExecResult
) -> None:
    action = replace(command, pod=launcher.pod, uid=launcher.uid)
    result = await PodExec(client).run(user.namespace, action)
    stdout = result.stdout.strip() + b"\n" if command.command[0] == "wc" else result.stdout
    assert replace(result, stdout=stdout) == want


async def test_a_command_that_takes_too_long_is_given_up(user: User, client: Client, launcher: Exec) -> None:
    command = ("sh", "-c", "echo begun; exec sleep 600")
    action = replace(launcher, command=command, timeout_seconds=5)
    result = await PodExec(client).run(user.namespace, action)
    assert (result.status, result.exit_code, result.stdout) == (ExecStatus.TIMED_OUT, None, b"begun\n")
    again = await PodExec(client).run(user.namespace, launcher)
    assert again.exit_code == 0


async def test_a_command_that_prints_without_end_is_given_up(
    user: User, client: Client, launcher: Exec
) -> None:
    action = replace(launcher, command=("cat", "/dev/zero"), timeout_seconds=6)
    result = await PodExec(client).run(user.namespace, action)
    assert (result.status, result.stdout) == (ExecStatus.TIMED_OUT, b"\0" * MAX_OUTPUT_BYTES)


async def test_a_missing_program_is_an_answer(user: User, client: Client, launcher: Exec) -> None:
    result = await PodExec(client).run(user.namespace, replace(launcher, command=("/no/such/program",)))
    assert result.exit_code != 0
    if result.status is not ExecStatus.DONE:
        assert result.status is ExecStatus.NOT_REACHABLE
        assert "no such file" in result.message


async def test_a_missing_container_is_not_reachable(user: User, client: Client, launcher: Exec) -> None:
    result = await PodExec(client).run(user.namespace, replace(launcher, container="missing"))
    assert result.status is ExecStatus.NOT_REACHABLE
    assert "missing" in result.message


async def test_nothing_is_run_in_a_pod_with_another_uid(user: User, client: Client, launcher: Exec) -> None:
    action = replace(launcher, uid="another", command=("touch", "/tmp/touched"))
    result = await PodExec(client).run(user.namespace, action)
    assert result.status is ExecStatus.POD_GONE
    probe = await PodExec(client).run(user.namespace, replace(launcher, command=("ls", "/tmp/touched")))
    assert probe.exit_code not in (0, None)


async def test_a_pod_that_is_deleted_while_the_command_runs(user: User, client: Client) -> None:
    uid = await start_pod(client, user.namespace, "doomed")
    command = ("sh", "-c", "touch /tmp/begun; exec sleep 600")
    action = Exec("key", "doomed", uid, "main", command, timeout_seconds=60)
    running = asyncio.create_task(PodExec(client).run(user.namespace, action))
    probe = replace(action, command=("ls", "/tmp/begun"))

    async def begun() -> bool:
        return (await PodExec(client).run(user.namespace, probe)).exit_code == 0

    await until(begun, "the command has begun")
    await client.delete(Pod, "doomed", user.namespace, uid=uid, grace_seconds=0)
    assert (await running).status is ExecStatus.POD_GONE
    assert (await PodExec(client).run(user.namespace, probe)).status is ExecStatus.POD_GONE


async def test_forty_commands_at_a_time_do_not_mix_their_outputs(
    user: User, client: Client, launcher: Exec
) -> None:
    patient = replace(launcher, timeout_seconds=100)  # forty processes start at a time
    actions = [
        replace(patient, key=str(number), command=("sh", "-c", f"cat; echo {number}"), stdin=b"%d " % number)
        for number in range(40)
    ]
    results = await asyncio.gather(*(PodExec(client).run(user.namespace, action) for action in actions))
    assert [result.stdout for result in results] == [b"%d %d\n" % (number, number) for number in range(40)]


AT_ONCE = 6
"""Lives that are lived side by side."""


@pytest.mark.long_on_cluster
@pytest.mark.parametrize(
    "every", [4, pytest.param(1, marks=pytest.mark.long)], ids=["a sample", "all requests"]
)
@pytest.mark.parametrize("answered", [False, True], ids=["before it is sent", "before its answer arrives"])
async def test_each_answer_is_recorded_once_if_the_operator_is_killed_at_any_request(
    target: Target, client: Client, user: User, answered: bool, every: int
) -> None:
    """In the sample the two kinds of kills happen at different requests."""
    await client.apply(CustomResourceDefinition, crd_for(Toy), force=True)
    await until_served(client, Toy, user.namespace)
    limit = asyncio.Semaphore(AT_ONCE)

    async def live(at: int) -> Killing:
        killing = Killing(at, answered=answered)
        async with limit, _namespace(client) as namespace:
            scene = ToyScene(client, target, namespace)
            await killing.run(scene, _announce_two_messages, _check_nothing)
        return killing

    with captured_lines():
        undisturbed = (await live(NEVER)).requests
        assert undisturbed > 15, "fewer requests than a life takes"
        first = 1 + answered * (every // 2)
        lives = await asyncio.gather(*(live(at) for at in range(first, undisturbed + 1, every)))
    killed = [life for life in lives if life.killed.is_set()]
    few = -(-5 // every)
    assert len(killed) >= len(lives) - few, "the number of requests differs a little from life to life"


async def _announce_two_messages(scene: ToyScene) -> None:
    uid = await start_pod(scene.client, scene.namespace, "radio")
    await scene.create_config_map("registry")
    await scene.create(message="hello", pod="radio")
    await scene.until_ready()
    await scene.edit(message="bye")
    toy = await scene.until_ready()
    keys = ["announcement-1", "announcement-2"]
    assert toy.status.argosy["answers"] == keys
    ended = Exec("key", "radio", uid, "main", ("cat", "/tmp/announced", "/tmp/started"))
    lines = (await PodExec(scene.client).run(scene.namespace, ended)).stdout.decode().split()
    assert lines[:2] == keys, "each command had its effect once"
    assert sorted(set(lines[2:])) == keys, "each was started once, or again after a kill"
    assert len(lines[2:]) <= len(keys) + 1


async def _check_nothing(_scene: ToyScene) -> None:
    """What was left is seen in the end."""


@asynccontextmanager
async def _namespace(client: Client) -> AsyncIterator[str]:
    """A namespace in which pods can be created; it is deleted at the end, without waiting for that."""
    name = f"t{fresh_name()}"
    await client.create(Namespace, {"metadata": {"name": name}})
    try:

        async def has_account() -> bool:
            accounts = await client.list(ServiceAccount, name)
            return any(account.metadata.name == "default" for account in accounts.items)

        await until(has_account, "the namespace has its ServiceAccount")
        yield name
    finally:
        await client.delete(Namespace, name)


async def start_pod(client: Client, namespace: str, name: str) -> str:
    """Create a pod, wait until it runs, and return its uid."""
    await client.create(Pod, pod_body(name), namespace)

    async def runs() -> str | None:
        pod = await client.get(Pod, name, namespace)
        statuses = pod.status.container_statuses
        return pod.metadata.uid if statuses and all(status.ready for status in statuses) else None

    return await until(runs, f"pod {name} runs")
