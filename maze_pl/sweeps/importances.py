"""Importances of searched options, from ranks of the trials."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from maze_pl.config.search_path import dump
from maze_pl.sweeps.search_space import Choice, Parameter, Range

FEWEST_TRIALS: Final = 10
"""Finished trials below which hardly any option could be told from chance."""
_N_ORDERS: Final = 200
"""Shuffled orders of the trials."""
_CHANCE: Final = 0.05
"""Largest share of shuffled orders that reach a number which is not taken for chance."""
Array = NDArray[np.float64]


def importances_of(
    parameters: Sequence[Parameter], assignments: Sequence[Mapping[str, Any]], values: Sequence[float]
) -> dict[str, float]:
    """Shares of the differences between trials that each option explains by itself.

        importance = (all - close) / (all - sorted)

    All three are means of |R_i - R_j|, where R are the ranks of the trials: `all` of all pairs of trials,
    `close` of pairs with close values of the option, and `sorted` of these pairs if the trials were ranked
    by the option. Close are trials with the same choice, and the nearest sqrt(n) ones in a range. An option
    that decides alone has nearly 1. The sum need not be 1: the rest is noise, or due to several options
    together. Numbers that more than 5% of 200 shuffled orders of the trials reach may be chance and become
    0; one in twenty options without effect still has a number. In trials without an option, it explains
    nothing. These are the ranks and nearest neighbours of Azadkia and Chatterjee 2021, arXiv:1910.12327,
    with absolute differences as in Chatterjee 2021, arXiv:1909.10140, divided by the largest attainable
    value as in Dalitz et al. 2024, arXiv:2312.15496. Unlike comparisons of the best trials with the others,
    they hold for few trials, and for those that a sampler has gathered around the best ones.

    Args:
        parameters: The searched options.
        assignments: [n] searched option -> value, of each finished trial.
        values: [n] values of the objective.

    Returns:
        Option -> share, the largest first, without options of fewer than two trials.

    Example:
        >>> from maze_pl.sweeps.search_space import Choice
        >>> parameters = [Choice("a", (1, 2)), Choice("b", (1, 2))]
        >>> trials = [{"a": a, "b": b} for a in (1, 2) for b in (1, 2)] * 3
        >>> importances_of(parameters, trials, [trial["a"] for trial in trials])
        {'a': 1.0, 'b': 0.0}
    """
    ranks = _ranks(values)
    explained: dict[str, float] = {}
    for parameter in parameters:
        trials = [place for place, assignment in enumerate(assignments) if parameter.option in assignment]
        if len(trials) > 1:
            chosen = [assignments[place][parameter.option] for place in trials]
            share = _explained(parameter, chosen, ranks[trials])
            if share:
                share *= _mean_difference(ranks[trials]) * len(trials) / (_mean_difference(ranks) * len(ranks))
            explained[parameter.option] = share
    return dict(sorted(explained.items(), key=lambda item: -item[1]))


def _ranks(values: Sequence[float]) -> Array:
    """[n] ranks; equal values have their mean rank."""
    _, place, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: Array = ends - (counts - 1) / 2
    return means[place]


def _mean_difference(ranks: Array) -> float:
    """Mean |R_i - R_j| of all pairs of at least two trials."""
    n = len(ranks)
    n_smaller_less_larger = 2.0 * np.arange(n) - (n - 1)  # in each place of the order
    return float(np.sort(ranks) @ n_smaller_less_larger) * 2.0 / (n * (n - 1))


def _explained(parameter: Parameter, chosen: Sequence[Any], ranks: Array) -> float:
    """Share of the differences between ranks that an option explains; 0 if it may be chance."""
    places = _places(parameter, chosen)
    if isinstance(parameter, Choice):
        if len(np.unique(places)) == len(places):  # as many choices as trials
            return 0.0
        close = _difference_in_groups(places)
    else:
        close = _difference_of_neighbours(places)
    mean = _mean_difference(ranks)
    by_option = np.empty_like(ranks)
    by_option[np.argsort(places, kind="stable")] = np.sort(ranks)
    largest = mean - close(by_option)
    generator = np.random.default_rng(0)
    by_chance = [mean - close(generator.permutation(ranks)) for _ in range(_N_ORDERS)]
    found = mean - close(ranks)
    if largest <= 0.0 or found <= max(0.0, float(np.quantile(by_chance, 1.0 - _CHANCE))):
        return 0.0
    return min(1.0, found / largest)


def _difference_in_groups(places: Array) -> Callable[[Array], float]:
    """Return the function from ranks to their mean |R_i - R_j| in pairs of trials with the same choice.

    Args:
        places: [n] numbers of the choices from 0, at least one of which occurs twice.
    """
    sizes = np.bincount(places.astype(np.int64))
    sizes = sizes[sizes > 0]
    place_in_group = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    size = np.repeat(sizes, sizes)
    n_in_pairs = sizes[sizes > 1].sum()
    # in each place of the order by choice and then by rank; as in `_mean_difference` of each choice
    weights = 2.0 * (2.0 * place_in_group - (size - 1)) / (np.maximum(size - 1, 1) * n_in_pairs)

    def difference(ranks: Array) -> float:
        return float(ranks[np.lexsort((ranks, places))] @ weights)

    return difference


def _difference_of_neighbours(places: Array) -> Callable[[Array], float]:
    """Return the function from ranks to their mean |R_i - R_j| in pairs of neighbours.

    Args:
        places: [n] values of an option in a range.
    """
    distances = np.abs(places[:, np.newaxis] - places)
    np.fill_diagonal(distances, np.inf)
    n_near = max(1, round(len(places) ** 0.5))
    is_close = distances <= np.partition(distances, n_near - 1)[:, n_near - 1 : n_near]
    first, second = np.nonzero(is_close)
    weights = 1.0 / (np.bincount(first)[first] * len(places))

    def difference(ranks: Array) -> float:
        return float(np.abs(ranks[first] - ranks[second]) @ weights)

    return difference


def _places(parameter: Parameter, chosen: Sequence[Any]) -> Array:
    """[n] values of an option on the scale on which they were drawn; numbers of the choices."""
    if not isinstance(parameter, Range):
        _, numbers = np.unique([dump(value) for value in chosen], return_inverse=True)
        return numbers.astype(np.float64)
    places = np.asarray(chosen, np.float64)
    return np.log(places) if parameter.log else places
