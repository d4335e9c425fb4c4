"""Importances of searched options, from ranks of the trials."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from maze_pl.config.search_path import dump
from maze_pl.sweeps.search_space import Choice, Parameter, Range

FEWEST_TRIALS: Final = 10
"""Finished trials below which importances would mostly be chance."""
Array = NDArray[np.float64]


def importances_of(
    parameters: Sequence[Parameter], assignments: Sequence[Mapping[str, Any]], values: Sequence[float]
) -> dict[str, float]:
    """Shares of the differences between trials that each option explains by itself.

        importance ~ 1 - (mean |R_i - R_j| of trials whose options are close) / (mean |R_i - R_j| of all trials)

    R are the ranks of the trials. An option that does not matter has 0 in the mean, one that decides
    alone nearly 1. Close are trials with the same choice, and the nearest sqrt(n) ones in a range. Each
    number counts for the trials that have the option; negative ones are chance and become 0. These are
    the ranks and nearest neighbours of Azadkia and Chatterjee 2021, arXiv:1910.12327, with absolute
    differences as in Chatterjee 2021, arXiv:1909.10140. Unlike comparisons of the best trials with the
    others, they hold for few trials, and for those that a sampler has gathered around the best ones.

    Args:
        parameters: The searched options.
        assignments: [n] searched option -> value, of each finished trial.
        values: [n] values of the objective.

    Returns:
        Option -> share, the largest first; the sum is 1. Empty if no option explains anything.

    Example:
        >>> from maze_pl.sweeps.search_space import Choice
        >>> parameters = [Choice("a", (1, 2)), Choice("b", (1, 2))]
        >>> trials = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)] * 2
        >>> importances_of(parameters, trials, [trial["a"] for trial in trials])
        {'a': 1.0, 'b': 0.0}
    """
    ranks = _ranks(values)
    explained: dict[str, float] = {}
    for parameter in parameters:
        trials = [place for place, assignment in enumerate(assignments) if parameter.option in assignment]
        if len(trials) > 1:
            chosen = [assignments[place][parameter.option] for place in trials]
            explained[parameter.option] = len(trials) * _explained(parameter, chosen, ranks[trials])
    total = sum(explained.values())
    if not total:
        return {}
    ordered = sorted(explained.items(), key=lambda item: -item[1])
    return {option: part / total for option, part in ordered}


def _ranks(values: Sequence[float]) -> Array:
    """[n] ranks; equal values have their mean rank."""
    _, place, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Array = ends - (counts - 1) / 2
    return means[place]


def _explained(parameter: Parameter, chosen: Sequence[Any], ranks: Array) -> float:
    """Mean difference of ranks between all trials, less that between trials with close values."""
    places = _places(parameter, chosen)
    n_near = max(1, round(len(ranks) ** 0.5))
    total = 0.0
    of_close: list[float] = []
    for trial in range(len(ranks)):
        others = np.arange(len(ranks)) != trial
        differences = np.abs(ranks - ranks[trial])[others]
        distances = np.abs(places - places[trial])[others]
        farthest = np.partition(distances, n_near - 1)[n_near - 1]
        is_close = distances == 0.0 if isinstance(parameter, Choice) else distances <= farthest
        total += float(differences.mean())
        if is_close.any():
            of_close.append(float(differences[is_close].mean()))
    if not of_close:  # as many choices as trials
        return 0.0
    return max(0.0, total / len(ranks) - float(np.mean(of_close)))


def _places(parameter: Parameter, chosen: Sequence[Any]) -> Array:
    """[n] values of an option on the scale on which they were drawn; numbers of the choices."""
    if not isinstance(parameter, Range):
        _, numbers = np.unique([dump(value) for value in chosen], return_inverse=True)
        return numbers.astype(np.float64)
    places = np.asarray(chosen, np.float64)
    return np.log(places) if parameter.log else places
