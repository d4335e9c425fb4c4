"""The global random generators of a process: those of Python, NumPy and torch.

Environments have seeds for everything that is random in them, but some draw from the global generators. Processes that
are forked from a common one would all draw the same numbers, so each worker process gets a seed.
"""

import random
import secrets
import sys


def seed_global_generators(seed: int) -> None:
    """Seed the global generators of Python, and of NumPy and torch (on all devices) if they are imported.

    Args:
        seed: Number in [0, 2**32).
    """
    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


def global_seed() -> tuple[int, int]:
    """Return the seed of the global generators of this process, and its rank.

    It is the seed of torch, which `seed_everything` and `torch.manual_seed` set. Without them, and without torch, it
    is a new one in each process. Nothing is drawn from the generators.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return secrets.randbits(63), 0
    is_one_of_several = torch.distributed.is_available() and torch.distributed.is_initialized()
    return torch.initial_seed(), torch.distributed.get_rank() if is_one_of_several else 0
