"""A process that competes for a lease and, while it leads, increments a counter in an object.

Every write has the resourceVersion of the read before it, as all writes of the operator do.

The leader's tests run it as a real process, so that signals can suspend and resume it.
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
    current = await client.get(ConfigMap, "work", "default")
    patch = {
        "metadata": {"resourceVersion": current.metadata.resource_version},
        "data": {identity: str(int(current.data.get(identity, "0")) + 1)},
    }
    await client.patch(ConfigMap, "work", patch, "default")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
