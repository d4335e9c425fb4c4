"""Running episodes in the states of shards, which checkpoints hold."""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor


def first_new_episode(ranks: Sequence[Sequence[dict[str, Any] | None]]) -> int:
    """Return the smallest index that no environment has reached with its episodes.

    Args:
        ranks: For each rank, the states of its shards; None for a shard that has not collected.
    """
    begun = [-1]
    for states in ranks:
        for state in states:
            if state:
                on_device = state.get("tensors")
                begun += on_device["episode"].tolist() if on_device else map(int, state.get("episodes", []))
    return max(begun) + 1


def cost_of_long_episodes(states: Sequence[dict[str, Any] | None]) -> str | None:
    """Return a warning if a checkpoint must hold all actions of long episodes; None if it need not.

    Args:
        states: States of shards, from which the reasons (`why`) are removed.
    """
    histories = [one for state in states if state for one in state.get("histories", [])]
    reasons = [(len(one["keys"]), one.pop("why")) for one in histories if "why" in one]
    if not reasons:
        return None
    n_acts, why = max(reasons)
    n_bytes = sum(part.nbytes for one in histories for part in _tensors(one))
    holds = f"the checkpoint holds all actions of {len(reasons)} episodes of up to {n_acts:,} acts"
    cost = f"{holds} ({n_bytes / 2**20:.1f} MiB), which resuming plays again, and grows until they end"
    remedy = "limit episodes (TimeLimitWrapper), or define episode_state and load_episode_state"
    return f"{cost}; {why}; {remedy} in the simulation"


def _tensors(state: Any) -> Iterator[Tensor]:
    """Yield the tensors of a state."""
    if isinstance(state, Tensor):
        yield state
    elif isinstance(state, dict | list):
        parts = state.values() if isinstance(state, dict) else state
        for part in parts:
            yield from _tensors(part)
