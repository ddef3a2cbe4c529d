"""Tests that pods reach external networks if the host does, and leave no rules on the host."""

import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from argosy.local.node import egress, masquerade
from tests.support.agents import Machine, machine
from tests.support.external_host import HOST, outside

pytestmark = [pytest.mark.root, pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


@pytest.fixture(scope="module")
def world() -> Iterator[str]:
    if masquerade.find_tool() is None:
        pytest.skip("neither nft nor iptables is installed")
    with outside() as url:
        yield url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(world: str) -> AsyncIterator[Machine]:
    async with machine() as running:
        yield running
    link = egress.link_addresses(running.state)[0]
    assert link not in _links_and_rules()


async def test_a_pod_reaches_other_hosts_with_the_hosts_address(here: Machine, world: str) -> None:
    assert await _asked(here, "first", world) == f"hello {HOST}"


async def test_a_pod_reaches_other_hosts_after_the_agent_restarted(here: Machine, world: str) -> None:
    here.kill()
    here.start()
    assert await _asked(here, "second", world) == f"hello {HOST}"


async def _asked(here: Machine, name: str, url: str) -> str:
    script = f"import urllib.request as u; print(u.urlopen('{url}', timeout=10).read().decode())"
    await here.run(name, f'python3 -c "{script}" 2>&1')
    await here.wait(name, lambda pod: pod.status.phase in ("Succeeded", "Failed"), 40)
    return (await here.logs(name)).strip()


def _links_and_rules() -> str:
    commands = {"nft": ["list", "ruleset"], "iptables": ["-S"]}
    return Path("/proc/net/dev").read_text() + "".join(
        subprocess.run([program, *words], capture_output=True, text=True, check=False).stdout
        for name, words in commands.items()
        if (program := masquerade.find_program(name))
    )


async def test_what_is_removed_already_is_no_error(tmp_path: Path) -> None:
    egress.remove(tmp_path)
