"""A process that contends for a lease and, while it leads, counts in an object as fast as it may.

Every write carries the version it was decided upon, as all writes of the operator do.

Run by the leader's tests as a real process, so that it can be stopped and continued by signals.
"""

import asyncio
import contextlib
import sys

from argosy.engine.client import Client
from argosy.engine.errors import ApiError
from argosy.engine.kubeconfig import Connection
from argosy.engine.leader import Leader
from argosy.kinds.kubernetes import ConfigMap


async def main(server: str, identity: str, duration: float) -> None:
    connection = Connection(server)
    async with Client(connection, user_agent=f"{identity}-lease") as lease_client:
        leader = Leader(
            lease_client,
            "work",
            "default",
            identity,
            duration=duration,
            renew_deadline=duration * 0.6,
            retry=duration * 0.2,
        )
        async with Client(connection, user_agent=identity, deadline=leader.deadline) as client:

            async def lead() -> None:
                while True:
                    with contextlib.suppress(ApiError):
                        await count(client, identity)
                    await asyncio.sleep(0.005)

            await leader.run(lead)


async def count(client: Client, identity: str) -> None:
    seen = await client.get(ConfigMap, "work", "default")
    patch = {
        "metadata": {"resourceVersion": seen.metadata.resource_version},
        "data": {identity: str(int(seen.data.get(identity, "0")) + 1)},
    }
    await client.patch(ConfigMap, "work", patch, "default")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
