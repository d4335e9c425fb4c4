"""Provides shells with `maze-pl`, `maze-run` and `run-script`, forked from a process that has imported everything.

usage: python -P tests/warm_maze_pl.py FOLDER

Writes the commands into the folder, says so in a line, and serves until standard input ends. Importing takes
seconds, which the forked commands save; they differ from separate processes in nothing that `maze-pl` looks at.
`run-script FILE ARGUMENTS` runs a Python file.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import select
import shutil
import socket
import sys
from pathlib import Path

import maze_pl.cli.fit  # noqa: F401  so that processes that are forked have it
from maze_pl import maze_run
from maze_pl.__main__ import main

COMMAND = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = {{"program": {program!r}, "arguments": sys.argv[1:], "folder": os.getcwd()}}
    request["environment"] = dict(os.environ)
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])
    sys.exit(int(server.recv(8)))
"""


def become(connection: socket.socket) -> tuple[str, list[str]]:
    """Turn this process into that of the command, and return its name and arguments."""
    message, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    request = json.loads(message)
    connection.close()
    for source, target in zip(files, range(3), strict=True):
        os.dup2(source, target)
        os.close(source)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    script = str(Path(sys.executable).with_name(request["program"]))
    sys.argv = [script, *request["arguments"]]
    sys.modules["__main__"].__file__ = script  # which other ranks and workers are started by
    return request["program"], request["arguments"]


def run(program: str, arguments: list[str]) -> int:
    """Run the command in this process."""
    if program == "run-script":
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")
        return 0
    return (maze_run.main if program == "maze-run" else main)(arguments)


def serve(folder: Path) -> None:
    """Fork a process for each request, and a second one that waits for it."""
    address = folder / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        listener.listen()
        for program in ("maze-pl", "maze-run", "run-script"):
            text = COMMAND.format(python=sys.executable, address=str(address), program=program)
            (folder / program).write_text(text, encoding="utf-8")
            (folder / program).chmod(0o755)
        print("serving", flush=True)
        while listener in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                pid = os.fork()
                if pid == 0:
                    sys.exit(run(*become(connection)))
                _, status = os.waitpid(pid, 0)
                connection.send(str(os.waitstatus_to_exitcode(status) % 256).encode())
                os._exit(0)
            connection.close()
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
    shutil.rmtree(sys.argv[1])
