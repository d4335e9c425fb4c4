"""Forks processes that run `maze-pl` from one that has imported everything. usage: python -m tests.faults.server

Reads requests from standard input and answers on standard output, a JSON value in each line:
{"start": ARGUMENTS, "folder": FOLDER, "output": FILE} -> pid; {"wait": PID, "seconds": SECONDS} -> exit status or null.
A process that is forked leads a session of its own, and ends as a process of its own would.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib.util import find_spec
from typing import Any

import maze_pl.cli.fit  # noqa: F401  so that processes that are forked have it
from maze_pl.__main__ import main


def become(request: dict[str, Any]) -> None:
    """Make this process what `python -m maze_pl ARGUMENTS` would be."""
    os.setsid()
    os.chdir(request["folder"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    sys.argv = ["maze-pl", *request["start"]]
    sys.modules["__main__"].__spec__ = find_spec("maze_pl.__main__")  # Lightning launches other ranks by it


def wait(pid: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return None


def serve() -> int:
    while line := sys.stdin.readline():
        request = json.loads(line)
        if "wait" in request:
            answer = wait(request["wait"], request["seconds"])
        else:
            answer = os.fork()
            if answer == 0:
                become(request)
                return main(request["start"])
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os._exit(0)  # taking an interpreter with torch apart takes seconds


if __name__ == "__main__":
    sys.exit(serve())
