"""The seed of a run: a given one, or that of `seed_everything`."""

import os


class RunSeed:
    """The seed from which those of environments, policies and evaluations are derived.

    A given seed always counts. Without one, each new run takes that of `seed_everything`, and a
    run that is resumed that of its checkpoint. A trainer that trains on keeps the seed of its run,
    whatever evaluations have come in between. An evaluation takes the seed of `seed_everything`
    only if that is another one than when the last run or evaluation began.

    Args:
        given: The given seed, if any.

    Attributes:
        given: As given; may be set.
    """

    def __init__(self, given: int | None) -> None:
        self.given = given
        self._global = _seed_of_everything()  # when a run or an evaluation began last
        self._current = self._global
        self._of_fit: int | None = None  # None before the first run

    @property
    def value(self) -> int:
        """The seed."""
        return self._current if self.given is None else self.given

    def begin_fit(self, *, is_new_run: bool) -> None:
        """Take the seed of a run that trains.

        Args:
            is_new_run: False if the trainer trains on.
        """
        self._global = _seed_of_everything()
        if is_new_run or self._of_fit is None:
            self._of_fit = self._global
        self._current = self._of_fit

    def begin_evaluation(self) -> None:
        """Take the seed of an evaluation outside of a run."""
        before = self._global
        self._global = _seed_of_everything()
        if self._global != before:
            self._current = self._global

    def continue_with(self, seed: int) -> bool:
        """Take over the seed of a checkpoint, unless one was given; True if that changes the seed.

        Args:
            seed: The seed in the checkpoint.
        """
        if self.given is not None or seed == self._current:
            return False
        self._current = self._of_fit = seed
        return True


def _seed_of_everything() -> int:
    """Return the seed that `seed_everything` was last called with; 0 if it was not."""
    return int(os.environ.get("PL_GLOBAL_SEED", "0"))
