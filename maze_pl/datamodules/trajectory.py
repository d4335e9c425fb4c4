"""The data module of algorithms that learn from demonstrations: its batches are acts of recorded episodes."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from maze_pl.collect.in_memory_dataset import InMemoryDataset
from maze_pl.core.rollout import TrajectoryBatch
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.datamodules.environments import Env, EnvironmentDataModule, make_frozen
from maze_pl.datamodules.rollout_evaluator import require_count


class TrajectoryDataModule(EnvironmentDataModule):
    """Deals out the acts of recorded episodes in batches, in another order in each epoch.

    Some episodes are held out: their acts are a further dataloader of validation, after those of the evaluators. With
    several ranks, each has other acts of the same order, and as many batches as the others.

    Args:
        dataset: The episodes.
        env: Builds one environment, whose spaces the episodes must have; None if there is none, so that nothing but
            held-out episodes is evaluated.
        wrappers: Wrap it, the first one innermost. Statistics that they need are estimated from the environment.
        batch_size: Acts of a batch on each rank, over all sub-steps; there are fewer in the last one of an epoch.
        validation_percentage: Of the episodes that are held out.
        options: Those of `EnvironmentDataModule`: evaluators, seed and others.

    Raises:
        ValueError: A number is out of range, or options contradict each other.
    """

    def __init__(
        self,
        dataset: InMemoryDataset,
        env: Callable[[], Env] | None = None,
        wrappers: list[Callable[[Env], Env]] | None = None,
        batch_size: int = 100,
        validation_percentage: float = 20,
        **options: Any,
    ) -> None:
        super().__init__(env, wrappers, **options)
        require_count("batch_size", batch_size, 1)
        if not 0 <= validation_percentage < 100:
            raise ValueError(f"validation_percentage={validation_percentage} must be at least 0 and below 100")
        if env is None and wrappers:
            raise ValueError(f"wrappers={wrappers} wrap an environment, but there is none: give one as env")
        self.dataset, self.batch_size, self.validation_percentage = dataset, batch_size, validation_percentage

    @property
    def spec(self) -> Spec:
        """What agents see and do, in the environment or, without one, in the episodes."""
        if self._factory is None:
            self._spec = self.dataset.load().spec
        return super().spec

    def _loader(self, *, held_out: bool) -> "ActLoader":
        self._refuse_foreign_checkpoint()
        if self._factory is not None:
            self.dataset.load(partial(make_frozen, self._factory, self._learned()), self.spec)
        acts = self.dataset.load().split(self.validation_percentage, derive_seed(self.seed, "held out"))[held_out]
        if not held_out and not len(acts):
            raise ValueError("all acts are of held-out episodes: record more, or lower validation_percentage")
        return ActLoader(self, acts, self.batch_size * (10 if held_out else 1), is_ordered=held_out)

    def order_seed(self) -> int:
        """Seed of the order in which acts come in this epoch."""
        return derive_seed(self.seed, "acts", self.trainer.current_epoch if self.trainer is not None else 0)

    def train_dataloader(self) -> "ActLoader":
        """Batches of all acts but the held-out ones."""
        return self._loader(held_out=False)

    def val_dataloader(self) -> list[Any]:
        """For each evaluator, its episodes; then the acts of held-out episodes, in order."""
        held_out = [self._loader(held_out=True)] if self.validation_percentage else []
        return super().val_dataloader() + [loader for loader in held_out if len(loader)]


class ActLoader:
    """A sized iterable of batches, which goes on where it was saved.

    Args:
        data: Says what batches are drawn from, in which order, and which part of each is dealt out on this rank.
        acts: [n] which acts these are.
        batch_size: Acts of a batch on each rank.
        is_ordered: Whether they come in the order of `acts`.
    """

    def __init__(self, data: TrajectoryDataModule, acts: Tensor, batch_size: int, is_ordered: bool) -> None:
        self._data, self._acts, self._is_ordered = data, acts, is_ordered
        self._joint_size = batch_size * data._world_size
        self._at = self._resumed = {"order": 0, "batch": 0}

    def __len__(self) -> int:
        return -(-len(self._acts) // self._joint_size)

    def __iter__(self) -> Iterator[TrajectoryBatch]:
        order, acts, resumed = 0, self._acts, self._resumed
        if not self._is_ordered:
            order = self._data.order_seed()
            acts = acts[torch.randperm(len(acts), generator=torch.Generator().manual_seed(order))]
        for batch in range(resumed["batch"] if resumed["order"] == order else 0, len(self)):
            self._at = {"order": order, "batch": batch + 1}
            joint = acts[batch * self._joint_size : (batch + 1) * self._joint_size]
            yield self._data.dataset.batch(joint[self._data._rank :: self._data._world_size])

    def state_dict(self) -> dict[str, Any]:
        """How many batches of which epoch's order were dealt out."""
        return self._at

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Leave out, in this epoch, what was dealt out before."""
        self._at = self._resumed = state_dict
