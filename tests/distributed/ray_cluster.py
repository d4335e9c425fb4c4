"""A real Ray cluster on this machine: each node has processes of its own, which can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl

from maze_pl.envs import StructuredEnv, Wrapper
from maze_pl.system.atomic_files import output_folder
from tests import shared_memory
from tests.distributed.launch import free_port

MARK = "MAZE_PL_TEST_CLUSTER"
SMALL = str(80 * 2**20)
# Ray decides once in a process whether it uses tokens, and each cluster that it joins later has to agree.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex * 2}
QUICK = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


@contextlib.contextmanager
def nothing_left() -> Iterator[Callable[[], set[int]]]:
    """Mark processes that are started meanwhile by an environment variable, and expect that none is left at the end."""
    mark, former = uuid.uuid4().hex, os.environ.get(MARK)
    memory, folders = shared_memory.names(), set(Path(tempfile.gettempdir()).glob("maze_pl-ray-*"))

    def processes_with(text: str, file: str) -> set[int]:
        found = set()
        for path in Path("/proc").glob(f"[0-9]*/{file}"):
            with contextlib.suppress(OSError):
                if text.encode() in path.read_bytes():
                    found.add(int(path.parent.name))
        return found - {os.getpid()}

    def marked() -> set[int]:
        return processes_with(mark, "environ")

    def left() -> list[str]:  # what no process uses, of other tests either
        new = set(Path(tempfile.gettempdir()).glob("maze_pl-ray-*")) - folders
        # processes that other tests have killed leave semaphores
        objects = [name for name in shared_memory.left(memory) if not name.startswith("sem.")]
        return [*objects, *(path.name for path in new if not processes_with(path.name, "cmdline"))]

    os.environ[MARK] = mark
    try:
        yield marked
    finally:
        os.environ.pop(MARK) if former is None else os.environ.update({MARK: former})
    deadline = time.monotonic() + 30
    while (marked() or left()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not marked(), [Path(f"/proc/{pid}/cmdline").read_text() for pid in marked()]
    assert not left()


class Cluster:
    """A cluster whose first node is started at once.

    Attributes:
        address: Its address.
    """

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="ray-")
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        options = ["--head", "--port", str(port), "--include-dashboard=false", "--temp-dir", self.folder]
        self.add(*options, "--system-config", json.dumps(QUICK))

    def add(self, *options: str, n_cpus: int = 1, variables: Mapping[str, str] | None = None) -> None:
        """Start a node."""
        ray = str(Path(sys.executable).parent / "ray")
        resources = ["--num-cpus", str(n_cpus), "--object-store-memory", SMALL, "--block"]
        where = options or ("--address", self.address)
        self.nodes.append(
            subprocess.Popen(
                [ray, "start", *where, *resources],
                env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0", **(variables or {})},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        )

    def kill(self, node: int) -> None:
        """Kill all processes of a node at once."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.nodes[node].pid, signal.SIGKILL)
        self.nodes[node].wait()

    def close(self) -> None:
        """Kill all nodes."""
        for node in reversed(range(len(self.nodes))):
            self.kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)


def join(cluster: Cluster) -> Any:
    """Join a cluster, and leave the handler of SIGTERM as it was; Ray itself."""
    ray = pytest.importorskip("ray")
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(cluster.address, logging_level="ERROR")
    signal.signal(signal.SIGTERM, handler)
    return ray


def alive() -> set[str]:
    """Ids of the nodes that this process's cluster has."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if node["Alive"]}


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.05)


class NodeReport(Wrapper):
    """Leaves a file with the name of the node on which an environment was stepped.

    Args:
        env: The environment.
        seconds: Duration of a step.
    """

    def __init__(self, env: StructuredEnv, seconds: float = 0.0) -> None:
        super().__init__(env)
        self.seconds = seconds

    def step(self, action: Any) -> Any:
        import ray

        time.sleep(self.seconds)
        node = ray.get_runtime_context().get_node_id() if ray.is_initialized() else "none"
        folder = output_folder("nodes")
        folder.mkdir(exist_ok=True)
        (folder / node).touch()
        return self.env.step(action)


class ClusterEvents(pl.Callback):
    """Changes the cluster of the test while training runs.

    Args:
        kill_in: Epoch in which the last node is killed while a rollout is collected.
        join_after: Epoch after which a node joins.
    """

    cluster: Cluster | None = None
    nodes: set[str] = set()  # noqa: RUF012  what the test looks at: those that joined

    def __init__(self, kill_in: int = -1, join_after: int = -1) -> None:
        self.kill_in, self.join_after = kill_in, join_after

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == self.kill_in and self.cluster is not None:
            threading.Timer(0.3, self.cluster.kill, [len(self.cluster.nodes) - 1]).start()

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == self.join_after and self.cluster is not None:
            before = alive()
            self.cluster.add()
            wait_for(lambda: len(alive()) > len(before))
            self.nodes.update(alive() - before)
            time.sleep(1.1)  # the engine looks once a second


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster of one node, which has one CPU."""
    with nothing_left():
        cluster = Cluster()
        ClusterEvents.cluster = cluster
        try:
            yield cluster
        finally:
            ClusterEvents.cluster = None
            cluster.close()


@contextlib.contextmanager
def small_ray() -> Iterator[None]:
    """Start Ray in this process with two CPUs, so that not every engine needs to start it."""
    import ray

    with nothing_left(), tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:
        ray.init(
            "local",
            num_cpus=2,
            object_store_memory=int(SMALL),
            include_dashboard=False,
            logging_level="ERROR",
            _temp_dir=folder,
        )
        try:
            yield
        finally:
            ray.shutdown()
