"""The source of a served policy: a bundle, or a run or checkpoint, which is exported in another process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from maze_pl.config.search_path import ConfigurationError
from maze_pl.runs.run_processes import program
from maze_pl.system.atomic_files import RUN_DIR_VARIABLE
from maze_pl.system.signals import MAIN_PROCESS_VARIABLE, STARTER_VARIABLE
from maze_pl.system.temporary_folder import temporary_folder

if TYPE_CHECKING:
    from maze_pl.serving.served_policy import ServedPolicy

TOKEN_VARIABLE: Final = "MAZE_PL_SERVE_TOKEN"
"""Environment variable with the token that requests must send, which is not passed on to exports."""
_MESSAGE: Final = "maze-pl: error: "  # before the message of a command that fails
_SECONDS_BETWEEN_LOOKS: Final = 0.05
_SECONDS_TO_END: Final = 2.0  # for an export that is stopped, until it is killed


class ServedSource:
    """Loads the policy of a bundle, and that of a run or a checkpoint by way of a bundle.

    The export runs in another process, since it takes long and executes code of the run: the server answers
    requests meanwhile, and outlives whatever happens to the export.

    Args:
        path: The bundle, run directory or checkpoint.
        max_batch: Largest number of observations of a request.
        checkpoint: Checkpoint of a run, as for `maze-pl export`.
        trust: Whether the run may name any class.
        debug: Whether an export that fails prints the traceback.
    """

    def __init__(
        self,
        path: Path,
        max_batch: int,
        *,
        checkpoint: str = "best",
        trust: bool = False,
        debug: bool = False,
    ) -> None:
        self._path = path
        self._max_batch = max_batch
        self._command = ["export", str(path), "--checkpoint", checkpoint]
        if trust:
            self._command.append("--trust")
        if debug:
            self._command.append("--debug")
        self._is_stopped = threading.Event()

    def load(self) -> ServedPolicy:
        """Load the policy, as the files are now.

        Raises:
            BundleError: The file is not a valid bundle.
            ConfigurationError: The run or checkpoint cannot be exported, or the export was stopped.
        """
        from maze_pl.serving.served_policy import ServedPolicy

        if not needs_export(self._path):
            return ServedPolicy(self._path, self._max_batch)
        with temporary_folder("maze-pl-serve-") as folder:  # for this export alone, as old folders may be removed
            bundle = folder / "agent.bundle"
            self._export(bundle, folder / "errors.txt")
            served = ServedPolicy(bundle, self._max_batch)
        left = [role["name"] for role in served.policy.manifest["wrappers"] if not role["is_included"]]
        if left:
            sys.stdout.write(f"left to clients: {', '.join(left)}; see the manifest, GET /spec\n")
        return served

    def stop(self) -> None:
        """End an export that is under way, and any that would begin later; may be called in any thread."""
        self._is_stopped.set()

    def _export(self, bundle: Path, error_file: Path) -> None:
        """Export the run or checkpoint, and pass on what the export writes to standard error.

        Args:
            bundle: The file to write.
            error_file: File for its standard error.

        Raises:
            ConfigurationError: It failed or was stopped.
        """
        variables = {**os.environ, STARTER_VARIABLE: str(os.getpid())}
        for name in (RUN_DIR_VARIABLE, MAIN_PROCESS_VARIABLE, TOKEN_VARIABLE):
            variables.pop(name, None)
        with error_file.open("wb") as errors:
            process = subprocess.Popen(
                [*program(), *self._command, "--to", str(bundle)],
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                start_new_session=True,  # the signals of a terminal are for the server
            )
        try:
            while process.poll() is None and not self._is_stopped.wait(_SECONDS_BETWEEN_LOOKS):
                pass
        finally:
            if process.poll() is None:
                _end(process)
        if self._is_stopped.is_set():
            raise ConfigurationError(f"the export of {self._path} was stopped, as the server ends")
        output = error_file.read_text(encoding="utf-8", errors="replace")
        if process.returncode == 0:
            sys.stderr.write(output)
            return
        notes, mark, message = output.rpartition(_MESSAGE)
        sys.stderr.write(notes if mark else output)  # with the traceback of a fault in the code of the run
        fault = f"the export of {self._path} ended with exit status {process.returncode}"
        raise ConfigurationError(message.strip() if mark else f"{fault}; the server's standard error has the reason")


def needs_export(source: Path) -> bool:
    """True for a run directory or a checkpoint, which is exported to a bundle first."""
    return source.is_dir() or source.suffix == ".ckpt"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End an export and all processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_SECONDS_TO_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
