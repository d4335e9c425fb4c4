"""Derivation of a random stream for every environment, episode, rank and purpose from one seed."""

import zlib

import numpy as np


def derive_seed(*path: int | str) -> int:
    """Derive a seed from a path: different for different paths, the same on every machine.

    Args:
        path: Numbers and names from the general to the specific, such as `(run_seed, "env", 3,
            episode)`.

    Returns:
        A seed in [0, 2**31).

    Example:
        >>> derive_seed(1, "env", 0, 0) == derive_seed(1, "env", 0, 0) != derive_seed(1, "env", 0, 1)
        True
    """
    entropy = [zlib.crc32(part.encode()) if isinstance(part, str) else part & 0xFFFFFFFF for part in path]
    entropy += [part >> 32 & 0xFFFFFFFF for part in path if type(part) is int and part > 0xFFFFFFFF]
    words = np.array(entropy, np.uint32)  # an array, as lists take twice as long
    return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)
