"""Those who follow events for ``bench.events``, in a process of their own.

Called with the address and how many; the token is in ``AUTOCODE_TOKEN``. Says ``ready`` when all are
connected, and at the end of its input how long after its fact each event was there, in seconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import datetime
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

_AT_ONCE: Final = 50


async def _connected(url: str, token: str, places: asyncio.Semaphore) -> ClientConnection:
    async with places:
        headers = {"Authorization": f"Bearer {token}"}
        opened = await connect(url, additional_headers=headers, proxy=None, compression=None)
        await opened.recv()
        return opened


async def _follow(connection: ClientConnection, found: list[float]) -> int:
    """Note how late each event is, until the connection ends; return how many came."""
    told = 0
    try:
        async for message in connection:
            now = time.time()
            event = json.loads(message)
            if "specversion" in event:
                found.append(now - datetime.fromisoformat(event["time"]).timestamp())
                told += 1
    except ConnectionClosed:
        sys.stderr.write("a follower was closed\n")
    return told


async def _main(url: str, count: int) -> None:
    places = asyncio.Semaphore(_AT_ONCE)
    token = os.environ["AUTOCODE_TOKEN"]
    connections = await asyncio.gather(*(_connected(url, token, places) for _ in range(count)))
    found: list[float] = []
    following = [asyncio.create_task(_follow(each, found)) for each in connections]
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.to_thread(sys.stdin.read)
    await asyncio.gather(*(each.close() for each in connections))
    told = await asyncio.gather(*following)
    json.dump({"latencies": found, "told": told}, sys.stdout)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], int(sys.argv[2])))
