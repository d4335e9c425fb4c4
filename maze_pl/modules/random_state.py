"""Random generators that can be sent to processes, and global random state for checkpoints."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Generator(torch.Generator):
    """A CPU generator that can be sent to a process that is being spawned.

    torch sends the state of its generators as a tensor in shared memory, which is gone before the
    new process asks for it.
    """

    def __reduce__(self) -> tuple[Callable[[bytes], Generator], tuple[bytes]]:  # type: ignore[override]
        return _generator, (self.get_state().numpy().tobytes(),)


def _generator(state: bytes) -> Generator:
    generator = Generator()
    generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    return generator


def global_random_state(device: torch.device) -> dict[str, Any]:
    """Return the state of the global generators of torch (also on `device`), NumPy and Python."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, internal, gauss_next = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(name),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            gauss,
        ],
        "python": [version, list(internal), gauss_next],
    }
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device, seed: int = 0) -> None:
    """Restore the state returned by `global_random_state`.

    Args:
        state: The state.
        device: Device whose generator is restored, too.
        seed: Seed of this generator if the state comes from another kind of device.
    """
    torch.set_rng_state(state["torch"].cpu())
    name, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((name, keys.cpu().numpy().astype(np.uint32), position, has_gauss, gauss))
    version, internal, gauss_next = state["python"]
    random.setstate((version, tuple(internal), gauss_next))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"].cpu(), device)
    elif device.type == "cuda":
        torch.cuda.manual_seed(seed)
