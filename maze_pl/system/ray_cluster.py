"""Joining a Ray cluster, or starting one on this machine."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from importlib import import_module, util
from typing import Any, Final

from maze_pl.system.temporary_folder import temporary_folder

_SECONDS_TO_ANSWER: Final = 10
_ASK: Final = (
    sys.executable,
    "-m",
    "ray.scripts.scripts",
    "health-check",
    "--skip-version-check",
    "--address",
)
# A node that does not answer for one second counts as dead; Ray's defaults take up to 20 s.
_HEALTH: Final = {"health_check_period_ms": 500, "health_check_failure_threshold": 2}


def ray_module() -> Any:
    """Return the package `ray`.

    Raises:
        ImportError: It is not installed.
    """
    if util.find_spec("ray") is None:
        raise ImportError('this needs Ray: pip install "maze-pl[ray]"')
    return import_module("ray")


def check_address(address: str | None) -> None:
    """Refuse an address that is neither `auto` nor `host:port`, nor None for this machine.

    Raises:
        ValueError: It is something else.
    """
    if address is None or address == "auto":
        return
    port = str(address).rpartition(":")[2]
    if "/" in str(address) or not port.isdigit():
        expected = "`auto` or `host:port`, such as 10.0.0.1:6379"
        raise ValueError(f"address={address!r} must be {expected}")


def join_cluster(address: str | None, undo: contextlib.ExitStack) -> None:
    """Start Ray or join the cluster; leave the handler of SIGTERM as it was.

    Args:
        address: Address of the cluster; None starts one on this machine.
        undo: On closing, leaves the cluster, and stops it if it was started here.

    Raises:
        ConnectionError: There is no cluster, or it has another version of Ray or Python.
    """
    where = address or "local"
    previous_handler = signal.getsignal(signal.SIGTERM)
    # Ray must keep running when the whole process group gets the signal.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        options: dict[str, Any] = {}
        if address is None:
            # without a token, Ray stores one in the home folder
            os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
            # Ray gives this folder mode 0777
            folder = undo.enter_context(temporary_folder("maze_pl-ray-"))
            options = {"_temp_dir": str(folder), "_system_config": _HEALTH}
        else:
            _ask(address)
        undo.callback(ray_module().shutdown)
        ray_module().init(where, include_dashboard=False, logging_level="ERROR", **options)
    except Exception as error:
        reason: Any = error.__cause__ or error
        output = getattr(error, "stderr", None)
        if output:
            last_line = output.decode().splitlines()[-1]
            reason = last_line.rpartition("] ")[2]
        raise ConnectionError(f"cannot use the Ray cluster at {where}: {reason}") from error
    finally:
        if signal.getsignal(signal.SIGTERM) is not previous_handler:
            signal.signal(signal.SIGTERM, previous_handler)  # Ray's handler would exit
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


def _ask(address: str) -> None:
    """Raise an error unless a cluster answers in time.

    Ray itself tries for a quarter of an hour and cannot be interrupted.
    """
    from pytorch_lightning.utilities import rank_zero_info

    seconds = _SECONDS_TO_ANSWER
    rank_zero_info(f"joining the Ray cluster at {address}, if it answers in {seconds} s")
    subprocess.run([*_ASK, address], timeout=seconds, check=True, capture_output=True)
