"""Random instances, drawn for each episode."""

from __future__ import annotations

import re

import numpy as np

from maze_pl.envs.job_shop.instance import Array, JobShopInstance
from maze_pl.envs.job_shop.instance_arrays import InstanceArrays
from maze_pl.envs.job_shop.instance_source import InstanceSource

_RANGE = r"(\d{1,4})(?:-(\d{1,4}))?"
_PATTERN = re.compile(rf"random\( *{_RANGE} *x *{_RANGE} *((?:, *\w+ *= *[\d.-]+ *)*)\)")
_EXPECTED = "random(15x15), random(6-10x5-8), random(10x5, times=1-20) or random(10x5, alternatives=3)"

_LONGEST = 800_000_000
"""Largest duration; 1.2 times as much is still a duration of an instance."""


class RandomInstances(InstanceSource):
    """Draws instances like Taillard's: each job visits each machine once, in a random order.

    Durations are uniform. With several alternatives, each operation has a random number of them on
    random machines, the first of which is that of the job shop; the duration on each is uniform in
    0.8 to 1.2 times that of the operation, rounded and at least 1, as in Song et al. 2022 (IEEE
    Transactions on Industrial Informatics 19(2), pp. 1600-1610).

    Args:
        n_jobs: Smallest and largest number of jobs.
        n_machines: Smallest and largest number of machines.
        times: Smallest and largest duration.
        alternatives: Largest number of alternatives of an operation; 1 for a job shop.

    Raises:
        ValueError: A range is empty or begins below 1, durations are too long, or there are more
            alternatives than machines.
    """

    def __init__(
        self,
        n_jobs: tuple[int, int],
        n_machines: tuple[int, int],
        times: tuple[int, int] = (1, 99),
        alternatives: int = 1,
    ) -> None:
        for name, (low, high) in {"n_jobs": n_jobs, "n_machines": n_machines, "times": times}.items():
            if not 1 <= low <= high:
                raise ValueError(f"{name}={low}-{high} of random instances must be a range from at least 1")
        if times[1] > _LONGEST:
            raise ValueError(f"times={times[0]}-{times[1]} of random instances must be at most {_LONGEST}")
        if not 1 <= alternatives <= n_machines[0]:
            raise ValueError(f"{alternatives=} of random instances must be from 1 to {n_machines[0]} machines")
        self.n_jobs = n_jobs
        self.n_machines = n_machines
        self.times = times
        self.alternatives = alternatives
        self.max_jobs = n_jobs[1]
        self.max_alternatives = alternatives
        self.max_operations = n_machines[1]
        self.max_machines = n_machines[1]

    @classmethod
    def parse(cls, text: str) -> RandomInstances:
        """Make a source of a text such as `random(15x15)`.

        Raises:
            ValueError: The text has another form.

        Example:
            >>> RandomInstances.parse("random(6-10x5, times=1-20)").n_jobs
            (6, 10)
        """
        match = _PATTERN.fullmatch(text.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a description of random instances; write {_EXPECTED}")
        options = {"times": "1-99", "alternatives": "1"}
        for option in filter(None, match[5].replace(" ", "").split(",")):
            name, value = option.split("=")
            if name not in options or not re.fullmatch(_RANGE, value):
                raise ValueError(f"{option!r} in {text!r} is unknown; write {_EXPECTED}")
            options[name] = value
        if "-" in options["alternatives"]:
            raise ValueError(f"alternatives in {text!r} is the largest number, a single one; write {_EXPECTED}")
        jobs = int(match[1]), int(match[2] or match[1])
        machines = int(match[3]), int(match[4] or match[3])
        low, _, high = options["times"].partition("-")
        return cls(jobs, machines, (int(low), int(high or low)), int(options["alternatives"]))

    def draw(self, generator: np.random.Generator) -> JobShopInstance:
        """Draw an instance."""
        n_jobs = int(generator.integers(self.n_jobs[0], self.n_jobs[1] + 1))
        n_machines = int(generator.integers(self.n_machines[0], self.n_machines[1] + 1))
        shape = (n_jobs, n_machines)
        base = generator.integers(self.times[0], self.times[1] + 1, shape)
        order = generator.permuted(np.tile(np.arange(n_machines), (n_jobs, 1)), axis=1)
        n_operations = np.full(n_jobs, n_machines)
        name = self._name(n_jobs, n_machines)
        if self.alternatives == 1:
            one = np.ones(shape, np.int64)
            return JobShopInstance(name, n_machines, order[..., np.newaxis], base[..., np.newaxis], n_operations, one)
        alternatives = self._alternatives(order.ravel(), base.ravel(), n_machines, generator)
        machines, durations, n_alternatives = (array.reshape(*shape, *array.shape[1:]) for array in alternatives)
        return JobShopInstance(name, n_machines, machines, durations, n_operations, n_alternatives)

    def instance_in(self, arrays: InstanceArrays, env: int) -> JobShopInstance:
        """Return an instance that was drawn, from the arrays that hold it."""
        return arrays.instance(env, self._name(int(arrays.n_jobs[env]), int(arrays.n_machines[env])))

    def _name(self, n_jobs: int, n_machines: int) -> str:
        """Name of an instance."""
        return f"random {n_jobs}x{n_machines}" + (", flexible" if self.alternatives > 1 else "")

    def _alternatives(
        self, machines: Array, durations: Array, n_machines: int, generator: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """Draw the alternatives of each of L operations.

        Args:
            machines: [L] machine of the first alternative.
            durations: [L] duration of the operation.
            n_machines: Number of machines.
            generator: Source of all randomness.

        Returns:
            Machines [L, K] and durations [L, K] of the alternatives, padded, and their numbers [L].
        """
        counts = np.empty(len(machines), np.int64)
        orders = np.empty((len(machines), n_machines), np.int64)
        factors = np.zeros((len(machines), self.alternatives))
        for place in range(len(machines)):  # one after the other, as each draw depends on the one before
            count = int(generator.integers(1, self.alternatives + 1))
            counts[place] = count
            orders[place] = generator.permutation(n_machines)
            factors[place, :count] = generator.uniform(0.8, 1.2, count)
        most = int(counts.max())
        exists = np.arange(most) < counts[:, np.newaxis]
        first = machines[:, np.newaxis]
        others = orders[orders != first].reshape(len(machines), n_machines - 1)
        chosen = np.concatenate([first, others], axis=1)[:, :most]
        lengths = np.maximum(np.rint(factors[:, :most] * durations[:, np.newaxis]), 1).astype(np.int64)
        return np.where(exists, chosen, first), np.where(exists, lengths, 0), counts
