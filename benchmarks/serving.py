"""Latencies of `maze-pl serve` under a constant rate of requests, from a separate process.

    python benchmarks/serving.py agent.bundle --rate 300 --seconds 60

Requests are sent at fixed times whether or not earlier ones are answered, so that a slow answer does not slow down the
load. The latency counts from the time at which a request was due.
"""

import argparse
import asyncio
import json
import re
import subprocess
import sys
import time

import httpx2
import numpy as np

from maze_pl_runtime import Policy


def body_of(path: str) -> bytes:
    """A request with an observation of zeros."""
    (step,) = Policy.load(path).manifest["steps"]
    observation = {name: np.zeros(space["shape"]).tolist() for name, space in step["observations"].items()}
    return json.dumps({"observation": observation}).encode()


async def load(address: str, body: bytes, rate: float, seconds: float) -> tuple[list[float], int]:
    """Send requests at a constant rate; return the latencies in seconds, and the number of failures."""
    latencies: list[float] = []
    failures = 0
    headers = {"content-type": "application/json"}
    limits = httpx2.Limits(max_connections=64, max_keepalive_connections=64)
    async with httpx2.AsyncClient(limits=limits, timeout=30) as client:

        async def send(due: float) -> None:
            nonlocal failures
            try:
                answer = await client.post(f"{address}/act", content=body, headers=headers)
                failures += answer.status_code != 200
            except httpx2.HTTPError:
                failures += 1
            latencies.append(time.perf_counter() - due)

        began = time.perf_counter()
        tasks = []
        for number in range(int(rate * seconds)):
            due = began + number / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.append(asyncio.create_task(send(due)))
        await asyncio.gather(*tasks)
    return latencies, failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle")
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    command = [sys.executable, "-m", "maze_pl", "serve", options.bundle, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found is not None
        try:
            latencies, failures = asyncio.run(load(found[0], body_of(options.bundle), options.rate, options.seconds))
        finally:
            server.terminate()
    p50, p99 = (1e3 * np.quantile(latencies, share) for share in (0.5, 0.99))
    longest = 1e3 * max(latencies)
    print(f"{len(latencies)} requests, {failures} failed; ms: median {p50:.1f}, p99 {p99:.1f}, longest {longest:.1f}")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
