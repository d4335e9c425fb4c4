"""Processes of gymnasium's vector environments."""

import contextlib
import os

from gymnasium.vector import AsyncVectorEnv
from gymnasium.vector.async_vector_env import AsyncState


def separate_from_group(vector: AsyncVectorEnv) -> None:
    """Keep the processes of a vector environment from signals to the group of this process, which ends them itself.

    They inherit the handlers of this process, and would end by TERM while it wants to finish a rollout.
    """
    for process in vector.processes:
        with contextlib.suppress(OSError):  # it was not forked from this process
            os.setpgid(process.pid or 0, 0)


def end_if_silent(vector: AsyncVectorEnv) -> None:
    """End the processes of a vector environment that does not answer, which its `close` would wait for."""
    is_idle = vector._state is AsyncState.DEFAULT
    if vector.closed or (is_idle and all(process.is_alive() for process in vector.processes)):
        return
    for process in vector.processes:
        process.kill()
        process.join()
    for pipe in vector.parent_pipes:
        if pipe is not None:
            pipe.close()
    vector.closed = True
