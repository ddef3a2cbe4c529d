"""Waits until other roles of the job reach a phase, or until this replica is a member of its own role.

It prints what it waits for whenever that changes.

Each request carries the ETag of the last response, so the operator answers at the next change. After a
restart of the operator or a dropped connection the same request is sent again.
"""

import sys
import time
from collections.abc import Mapping, Sequence

from argosy.helper.endpoint import Endpoint
from argosy.helper.errors import DeadlineExceededError, RejectedError

POLL_SECONDS = 30


def wait_for(endpoint: Endpoint, conditions: Sequence[tuple[str, str]], seconds: float | None = None) -> int:
    """0 once every (role, phase) is reached; 1 when one cannot be reached any more; 2 when time is up."""
    started = time.monotonic()
    deadline = None if seconds is None else started + seconds
    for role, phase in conditions:
        try:
            problem = _wait_for_one(endpoint, role, {"phase": phase}, f"role {role} to be {phase}", deadline)
        except DeadlineExceededError:
            return _fail(f"role {role} was not {phase} within {seconds:g} s", 2)
        except RejectedError as error:
            return _fail(f"cannot wait for role {role}: {error}", 1)
        if problem:
            return _fail(f"role {role} will not become {phase}: {problem}", 1)
        _say(f"role {role} is {phase} ({time.monotonic() - started:.1f} s)")
    return 0


def wait_to_join(endpoint: Endpoint, role: str, index: int) -> int:
    """0 once the replica is a member of its role; 1 when it cannot be any more."""
    started = time.monotonic()
    what = f"{role}-{index} to be a member of its role"
    try:
        problem = _wait_for_one(endpoint, role, {"member": str(index)}, what, None)
    except RejectedError as error:
        return _fail(f"cannot wait for {what}: {error}", 1)
    if problem:
        return _fail(f"{role}-{index} will not be a member of its role: {problem}", 1)
    _say(f"{role}-{index} is a member of its role ({time.monotonic() - started:.1f} s)")
    return 0


def _wait_for_one(
    endpoint: Endpoint, role: str, wanted: Mapping[str, str], what: str, deadline: float | None
) -> str:
    etag = ""
    while True:
        left = POLL_SECONDS if deadline is None else min(POLL_SECONDS, deadline - time.monotonic())
        if left <= 0:
            raise DeadlineExceededError
        query = {**wanted, "wait": f"{left:.0f}s", "etag": etag}
        answer = endpoint.get_json(f"roles/{role}", query, deadline)
        if answer.get("reached"):
            return ""
        if answer.get("unreachable"):
            return str(answer.get("message", ""))
        new_etag = str(answer.get("etag", ""))
        if new_etag != etag:
            _say(f"waiting for {what}: {answer.get('message', '')}")
        etag = new_etag


def _say(text: str) -> None:
    print(f"argosy: {text}", flush=True)


def _fail(text: str, code: int) -> int:
    print(f"argosy: {text}", file=sys.stderr, flush=True)
    return code
