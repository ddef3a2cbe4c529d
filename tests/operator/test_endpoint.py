"""Tests for the endpoint with the real helper, in a separate process, over TLS."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest
from msgspec.structs import replace

from argosy.operator import endpoint
from argosy.operator.endpoint import Endpoint
from argosy.operator.endpoint_credentials import make_credentials
from argosy.operator.job_views import (
    DEBOUNCE_SECONDS,
    MAX_UNKNOWN_WAITS,
    ChangeSignal,
    JobViews,
)
from argosy.wire.client import Client as HttpClient
from argosy.wire.origin import Origin
from argosy.wire.server import Server
from argosy.workload.dependencies import ROLE_PHASES
from argosy.workload.index_set import IndexSet
from argosy.workload.model import Phase, Rules
from argosy.workload.record import RoleRecord
from tests.support.endpoint_stage import Stage, ask, serving
from tests.support.waiting import eventually


def entries(readings: JobViews) -> int:
    """Return how many responses and jobs the endpoint caches."""
    return sum(1 + len(job.cached) for jobs in readings._views.values() for job in jobs.values())


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage(make_credentials(["localhost"], datetime.now(UTC)))
    async with serving(stage):
        yield stage


async def test_helper_waits_until_the_role_is_running(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.STARTING, worker=Phase.STARTING)
    stage.pod("worker", 0)
    stage.pod("worker", 1, "Pending")
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.readings._waiting)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.pod("worker", 1)
    ended = await waiting
    assert ended.code == 0, ended.err
    assert "1 of 2 pods running" in ended.out
    assert "role worker is Running" in ended.out


async def test_changes_of_pods_alone_do_not_end_the_wait_of_helpers(stage: Stage) -> None:
    """A thousand may wait: each answer that does not let them go is a thousand new questions."""
    stage.jobs.set("mnist", Phase.STARTING, worker=Phase.STARTING)
    stage.pod("worker", 0, "Pending")
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.ready_checks == 2)
    await eventually(lambda: stage.readings._waiting)
    stage.pod("worker", 0)
    (waiter,) = stage.readings._waiting["default", "mnist"]
    await eventually(lambda: not waiter._any.is_set())  # the change was processed, and not reported
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.readings._notify("default", "mnist", record_changed=True)
    assert (await waiting).code == 0
    assert stage.ready_checks == 2


async def test_change_of_the_job_ends_a_wait_at_once() -> None:
    changes = ChangeSignal()
    loop = asyncio.get_running_loop()
    changes.notify(record_changed=False)
    began = loop.time()
    assert await changes.wait(began + 60)
    assert loop.time() - began >= DEBOUNCE_SECONDS, "pods come in groups"
    changes.notify(record_changed=False)
    changes.notify(record_changed=True)
    heard = asyncio.create_task(changes.wait(loop.time() + 60))
    for _ in range(10):
        await asyncio.sleep(0)
    assert heard.done(), "what the job itself tells waits for no timer"
    assert not await changes.wait(loop.time() + 0.01), "nothing else happened"


async def test_helper_fails_when_the_job_has_failed(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.FAILED, worker=Phase.FAILED)
    ended = await stage.helper("wait", "worker=Running")
    assert ended.code == 1
    assert "role worker will not become Running: the job is Failed" in ended.err


@pytest.mark.parametrize(("seconds", "unreachable"), [(0, False), (61, True)])
async def test_failed_role_is_waited_for_during_a_grace_period(
    stage: Stage, seconds: int, unreachable: bool
) -> None:
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    stage.jobs.set("mnist", Phase.RUNNING, since=since, worker=Phase.FAILED)
    status, body = await ask(stage, "/v1/jobs/default/mnist/roles/worker", "phase=Running")
    assert (status, b"role worker has been Failed for 60 s" in body) == (200, unreachable)


async def test_succeeded_role_counts_as_having_been_running(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, data=Phase.SUCCEEDED)
    assert (await stage.helper("wait", "data=Running")).code == 0


async def test_token_is_accepted_for_its_own_job_only(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    stage.jobs.set("other", Phase.RUNNING, worker=Phase.RUNNING)
    ended = await stage.helper("wait", "worker=Running", job="other", token=stage.trust.token("uid-of-mnist"))
    assert ended.code == 1
    assert "401 invalid token for job default/other" in ended.err


@pytest.mark.parametrize("job", ["mnist", "other"], ids=["a job", "none"])
async def test_request_without_a_token_does_not_reveal_whether_a_job_exists(stage: Stage, job: str) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    context = ssl.create_default_context(cadata=stage.trust.ca)
    client = HttpClient(Origin.from_url(f"https://localhost:{stage.port}"))
    try:
        answer = await client.send(
            "GET", f"/v1/jobs/default/{job}/roles/worker", {}, context=context, timeout=4
        )
    finally:
        await client.close()
    assert (answer.status, answer.body) == (401, b'{"message":"missing token"}')


async def test_requests_for_unknown_phases_and_roles_are_not_cached(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    for number in range(2000):
        status, body = await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"phase={number}{'x' * 999}")
        assert status == 400
        assert b"must be one of Pending, Starting, Running, Succeeded, Failed" in body
        assert len(body) < 200
        assert (await ask(stage, f"/v1/jobs/default/mnist/roles/boss-{number}"))[0] == 404
        assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"x={number}"))[0] == 200
    for phase in ROLE_PHASES:
        assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker", f"phase={phase}"))[0] == 200
    assert entries(stage.readings) == 1 + len(ROLE_PHASES)


async def test_job_is_translated_only_for_requests_with_its_token(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Translating a job may take long; a stranger must not be able to cause it."""
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.01)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    status, _ = await ask(stage, "/v1/jobs/default/mnist/roles/worker", token="wrong")
    assert (status, stage.jobs.read, entries(stage.readings)) == (401, [], 0)
    assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker"))[0] == 200
    assert stage.jobs.read == ["mnist"]


async def test_requests_with_invalid_tokens_over_the_limit_do_not_wait(stage: Stage) -> None:
    held = [
        asyncio.create_task(ask(stage, f"/v1/jobs/default/job-{number}/roles/worker", token="wrong"))
        for number in range(MAX_UNKNOWN_WAITS)
    ]
    await eventually(lambda: len(stage.readings._waiting) == MAX_UNKNOWN_WAITS)
    for number in range(500):
        status, body = await ask(stage, f"/v1/jobs/default/one-more-{number}/roles/worker", token="wrong")
        assert (status, b"try again" in body) == (503, True)
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    assert (await ask(stage, "/v1/jobs/default/mnist/roles/worker"))[0] == 200
    assert len(stage.readings._waiting) == MAX_UNKNOWN_WAITS
    assert {status for status, _ in await asyncio.gather(*held)} == {401}
    assert not stage.readings._waiting


async def test_unknown_role_is_reported(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    ended = await stage.helper("wait", "boss=Running")
    assert (ended.code, '404 unknown role "boss"' in ended.err) == (1, True)


async def test_helper_retries_a_replica_that_is_not_ready(stage: Stage) -> None:
    stage.not_ready = "not synced: Pod"
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    waiting = asyncio.create_task(stage.helper("wait", "worker=Running", "--deadline", "20"))
    await eventually(lambda: stage.ready_checks)
    stage.not_ready = ""
    ended = await waiting
    assert ended.code == 0, ended.err
    assert "503 not synced: Pod" in ended.err


HOSTS = "/v1/jobs/default/mnist/hosts"


async def test_host_files_have_path_mode_and_content_of_the_recorded_list(stage: Stage) -> None:
    etag = stage.jobs.set_hosts("mnist", 0, 2)
    status, body = await ask(stage, HOSTS)
    assert status == 200
    answer = json.loads(body)
    assert answer.pop("etag") == etag
    assert answer.pop("version") == int(etag.partition("-")[0])
    assert answer == {
        "versionFile": "/etc/edl/.host-list-version",
        "files": [
            {"path": "/etc/edl/hostfile", "mode": 0o600, "content": "mnist-worker-0:1\nmnist-worker-2:1\n"},
            {"path": "/etc/edl/discover_hosts.sh", "mode": 0o755, "content": "#!/bin/sh\n"},
            {
                "path": "/job/hostfile",
                "mode": 0o600,
                "content": "mnist-worker-0 slots=1\nmnist-worker-2 slots=1\n",
            },
        ],
    }


async def test_request_with_the_current_etag_is_answered_when_the_list_changes(stage: Stage) -> None:
    etag = stage.jobs.set_hosts("mnist", 0, 1)
    waiting = asyncio.create_task(ask(stage, HOSTS, f"etag={etag}&wait=60s"))
    await eventually(lambda: stage.readings._waiting)
    stage.pod("worker", 1)
    stage.readings._notify("default", "mnist", record_changed=True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not waiting.done(), "neither a pod nor another change of the status is a new list"
    new = stage.change_hosts("mnist", 0)
    for _ in range(20):
        await asyncio.sleep(0)
    assert waiting.done(), "a new list waits for no timer"
    status, body = await waiting
    assert (status, json.loads(body)["etag"]) == (200, new)


async def test_request_that_has_waited_long_enough_is_answered_without_files(stage: Stage) -> None:
    etag = stage.jobs.set_hosts("mnist", 0, 1)
    status, body = await ask(stage, HOSTS, f"etag={etag}&wait=10ms")
    assert (status, json.loads(body)) == (200, {"etag": etag})


async def test_replica_whose_cache_lags_does_not_answer_with_an_older_list(stage: Stage) -> None:
    older = stage.jobs.set_hosts("mnist", 0, 1)
    newer = f"{int(older.partition('-')[0]) + 1}-{'0' * 16}"
    status, body = await ask(stage, HOSTS, f"etag={newer}&wait=10ms")
    assert (status, json.loads(body)) == (200, {"etag": newer})


async def test_replica_that_would_render_other_files_than_recorded_does_not_serve_them(stage: Stage) -> None:
    """It may be of another version, or its cache has an edit of the spec that the leader has not seen."""
    stage.jobs.set_hosts("mnist", 0, 1)
    view = stage.jobs.views["default", "mnist"]
    assert view.workload is not None
    worker = replace(view.workload.roles["worker"], slots=4)
    edited = replace(view.workload, roles={**view.workload.roles, "worker": worker})
    stage.jobs.views["default", "mnist"] = replace(view, workload=edited)
    assert (await ask(stage, HOSTS, "wait=10ms"))[0] == 503
    waiting = asyncio.create_task(ask(stage, HOSTS, "wait=60s"))
    await eventually(lambda: stage.readings._waiting)
    etag = stage.change_hosts("mnist", 0, 1, slots=4)
    assert json.loads((await waiting)[1])["etag"] == etag


NO_FILES = {
    "no host is listed yet: 503": ((), 503, "no host is listed yet"),
    "the job has no host list: 404": (None, 404, "the job has no host list"),
}


@pytest.mark.parametrize(("listed", "want", "message"), NO_FILES.values(), ids=NO_FILES)
async def test_job_without_host_files(
    stage: Stage, listed: tuple[int, ...] | None, want: int, message: str
) -> None:
    stage.jobs.set_hosts("mnist", *(listed or ()))
    if listed is None:
        view = stage.jobs.views["default", "mnist"]
        assert view.workload is not None
        plain = replace(view.workload, rules=Rules())
        stage.jobs.views["default", "mnist"] = replace(view, workload=plain)
    status, body = await ask(stage, HOSTS)
    assert (status, json.loads(body)) == (want, {"message": message})


HOSTILE_QUERIES = {
    "etag without a version": "etag=abc",
    "etag of another form": "etag=1-XYZ",
    "etag of a megabyte": f"etag={'9' * 1_000_000}-{'0' * 16}",
    "negative version": f"etag=-1-{'0' * 16}",
    "time that is no duration": "wait=x",
}


@pytest.mark.parametrize("query", HOSTILE_QUERIES.values(), ids=HOSTILE_QUERIES)
async def test_invalid_request_for_hosts_is_rejected_and_not_cached(stage: Stage, query: str) -> None:
    stage.jobs.set_hosts("mnist", 0)
    status, body = await ask(stage, HOSTS, query)
    assert (status, len(body) < 200, entries(stage.readings)) == (400, True, 0)


async def test_host_files_are_read_with_the_token_of_their_job_only(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "UNKNOWN_JOB_GRACE_SECONDS", 0.01)
    stage.jobs.set_hosts("mnist", 0)
    for token in ("wrong", stage.trust.token("uid-of-other")):
        status, body = await ask(stage, HOSTS, token=token)
        assert (status, b"worker" in body) == (401, False)


async def test_all_waiting_launchers_get_their_new_list(stage: Stage) -> None:
    """Over real connections, one for each of 500 jobs, as their sidecars have them."""
    server = Server(Endpoint(stage.context).handle)
    port = await server.listen_tcp("127.0.0.1", 0)
    jobs = [f"job-{number}" for number in range(500)]
    etags = {job: stage.jobs.set_hosts(job, 0, 1) for job in jobs}
    client = HttpClient(Origin.from_url(f"http://127.0.0.1:{port}"))

    async def poll(job: str) -> str:
        headers = {"authorization": f"Bearer {stage.trust.token(f'uid-of-{job}')}"}
        path = f"/v1/jobs/default/{job}/hosts?etag={etags[job]}&wait=60s"
        answer = await client.send("GET", path, headers, timeout=60)
        return str(json.loads(answer.body)["etag"])

    try:
        polls = [asyncio.create_task(poll(job)) for job in jobs]
        await eventually(lambda: len(stage.readings._waiting) == len(jobs))
        wanted = [stage.change_hosts(job, 0) for job in jobs]
        assert await asyncio.gather(*polls) == wanted
    finally:
        await client.close()
        await server.close(0.1)


async def test_waiting_requests_for_hosts_are_answered_when_the_replica_stops(stage: Stage) -> None:
    etag = stage.jobs.set_hosts("mnist", 0)
    waiting = asyncio.create_task(ask(stage, HOSTS, f"etag={etag}&wait=60s"))
    await eventually(lambda: stage.readings._waiting)
    stage.readings.release_waiters()
    assert json.loads((await waiting)[1]) == {"etag": etag}


def set_members(stage: Stage, members: str, *, finished: bool = False) -> None:
    stage.jobs.set("mnist", Phase.RUNNING, worker=Phase.RUNNING)
    job = stage.jobs.views["default", "mnist"]
    last = RoleRecord(phase=Phase.RUNNING, members=IndexSet.decode(members), declared=4)
    finished_at = datetime.now(UTC) if finished else None
    record = replace(job.record.with_role("worker", last), finished_at=finished_at)
    stage.jobs.views["default", "mnist"] = replace(job, record=record)
    stage.readings._notify("default", "mnist", record_changed=True)


async def test_helper_waits_until_its_replica_is_a_member(stage: Stage) -> None:
    set_members(stage, "0-1")
    waiting = asyncio.create_task(stage.helper("join", "worker", "3"))
    await eventually(lambda: stage.ready_checks == 2)
    await eventually(lambda: stage.readings._waiting)
    set_members(stage, "0-3")
    ended = await waiting
    assert ended.code == 0, ended.err
    assert "waiting for worker-3 to be a member of its role: 2 of 4 are members" in ended.out
    assert "worker-3 is a member of its role" in ended.out


async def test_helper_of_a_replica_that_is_not_needed_any_more_fails(stage: Stage) -> None:
    set_members(stage, "0-1", finished=True)
    ended = await stage.helper("join", "worker", "3")
    assert ended.code == 1
    assert "worker-3 will not be a member of its role: the job has finished" in ended.err


async def test_all_replicas_are_members_before_anything_is_recorded(stage: Stage) -> None:
    stage.jobs.set("mnist", Phase.PENDING, worker=Phase.PENDING)
    assert (await stage.helper("join", "worker", "3")).code == 0


@pytest.mark.parametrize("index", ["-1", "x", "1000001", "\u0661", "0" * 9])
async def test_invalid_index_is_rejected(stage: Stage, index: str) -> None:
    set_members(stage, "0-1")
    status, body = await ask(stage, "/v1/jobs/default/mnist/roles/worker", urlencode({"member": index}))
    assert (status, b"must be between 0 and 1000000" in body) == (400, True)
