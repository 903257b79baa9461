"""Runs clients that send requests to a Gateway continuously, and records each error with its time.

Run as `python -m bench.clients ADDRESS:PORT HOST NUMBER`; at the end of its standard input it prints its counts and errors as
JSON.

A sent request without a response is *lost*; a response other than 200 is *wrong*. A connection that is refused before anything
is sent is *refused*, and the client retries it, as every client does.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
import time

PAUSE = 0.005
ANSWER_WITHIN = 10.0


@dataclasses.dataclass
class Seen:
    ok: int = 0
    slowest: float = 0.0
    lost: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    wrong: list[tuple[float, str]] = dataclasses.field(default_factory=list)
    refused: list[float] = dataclasses.field(default_factory=list)


async def client(address: str, port: int, host: str, seen: Seen, stop: asyncio.Event) -> None:
    request = f"GET / HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()
    streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while not stop.is_set():
        began = time.monotonic()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                streams = streams or await asyncio.open_connection(address, port)
        except OSError:
            seen.refused.append(began)
            await asyncio.sleep(0.02)
            continue
        reader, writer = streams
        try:
            writer.write(request)
            async with asyncio.timeout(ANSWER_WITHIN):
                status, closes = await _answer(reader)
        except (OSError, EOFError, ValueError) as error:
            seen.lost.append((began, repr(error)))
            writer.close()
            streams = None
            continue
        if status == 200:
            seen.ok += 1
            seen.slowest = max(seen.slowest, time.monotonic() - began)
        else:
            seen.wrong.append((began, str(status)))
        if closes:
            writer.close()
            streams = None
        await asyncio.sleep(PAUSE)


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
    await reader.readexactly(int(fields.get(b"content-length", 0)))
    return int(head[9:12]), fields.get(b"connection") == b"close"


async def main(place: str, host: str, number: str) -> None:
    address, _, port = place.rpartition(":")
    seen, stop = Seen(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for _ in range(int(number)):
            tasks.create_task(client(address, int(port), host, seen, stop))
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        stop.set()
    print(json.dumps(dataclasses.asdict(seen)), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
