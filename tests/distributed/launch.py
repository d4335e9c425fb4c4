"""Starts processes that must end by themselves, and ends them if they do not."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    """A port that nothing listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def torchrun(*arguments: str, n_ranks: int = 1, node: int = 0, n_nodes: int = 1, port: int | None = None) -> list[str]:
    """Command line that runs a script, or with -m a module, on several ranks of one or several nodes."""
    nodes = ["--nnodes", str(n_nodes), "--node-rank", str(node), "--nproc-per-node", str(n_ranks)]
    master = ["--master-addr", "127.0.0.1", "--master-port", str(port or free_port())]
    return [sys.executable, "-m", "torch.distributed.run", *nodes, *master, *arguments]


def run(
    *commands: Sequence[str],
    folders: Sequence[Path],
    paths: Sequence[Path] = (),
    timeout: float = 150,
    fails: bool = False,
) -> list[str]:
    """Run commands at the same time, to their end.

    Args:
        commands: Command lines.
        folders: Working directory of each of them.
        paths: Put on PYTHONPATH.
        timeout: Seconds after which everything is killed and the test fails.
        fails: Whether they must end with an exit status other than 0.

    Returns:
        What each of them wrote, standard error included.
    """
    search = os.pathsep.join(str(path) for path in (*paths, ROOT))
    environment = {**os.environ, "PYTHONPATH": search, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    outputs = [folder / f"output-{index}.txt" for index, folder in enumerate(folders)]
    processes: list[subprocess.Popen[bytes]] = []
    overdue = False
    try:
        for command, folder, output in zip(commands, folders, outputs, strict=True):
            with output.open("w") as file:
                process = subprocess.Popen(
                    command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
                )
            processes.append(process)
        deadline = time.monotonic() + timeout
        for process in processes:
            process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        overdue = True
    finally:
        for process in processes:
            _end(process)
    texts = [output.read_text(errors="replace") for output in outputs]
    for output in outputs:
        output.unlink()
    codes = [process.returncode for process in processes]
    ended = not overdue and [code != 0 for code in codes] == [fails] * len(codes)
    assert ended, f"exit codes {codes} within {timeout} s\n" + "\n".join(text[-5000:] for text in texts)
    return texts


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process that still runs, with those that it started."""
    if process.poll() is not None:
        return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.terminate()  # torchrun ends its workers, which have sessions of their own, in 30 s if they hang
        process.wait(45)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
