"""Off-policy evaluation of a policy from recorded episodes."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from tqdm import tqdm

from maze_pl.agents.acting import ActsOnObservations
from maze_pl.config.search_path import ConfigurationError
from maze_pl.core.checks import check_count, check_fraction
from maze_pl.core.policy import Policy
from maze_pl.core.random_policy import RandomPolicy
from maze_pl.core.spec import Spec
from maze_pl.datasets.episode_loader import entries_of
from maze_pl.estimation.cloning import clone_of
from maze_pl.estimation.doubts import doubts_of_estimates, doubts_of_records, doubts_of_weights
from maze_pl.estimation.fitted_q import FittedQ, FittedQOptions
from maze_pl.estimation.importance_sampling import DOUBLY_ROBUST, WEIGHTING, Estimator, effective_sample_size
from maze_pl.estimation.probabilities import log_probs, require_memoryless
from maze_pl.estimation.recorded_acts import RecordedActs, read_acts
from maze_pl.estimation.results import OffPolicyEstimate, OffPolicyEvaluation
from maze_pl.estimation.reward_units import AGENT, unit_of_rewards
from maze_pl.estimation.weighted_episodes import Array, ModelValues, WeightedEpisodes
from maze_pl.runs.checkpoint_files import named_checkpoint
from maze_pl.runs.intervals import Interval, t_interval
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.reward_wrappers import reward_wrappers_in
from maze_pl.runs.run_checkpoints import BEST
from maze_pl.system.progress import bar_options

FITTED_Q: Final = "fitted_q"
ESTIMATORS: Final = (*WEIGHTING, FITTED_Q, *DOUBLY_ROBUST)
"""Names of all estimators, in the order in which they are shown."""
N_RESAMPLES: Final = 1000
"""Number of bootstrap samples of the episodes."""
_MOST_VALUES: Final = 50_000_000
"""Number of products of a part of the bootstrap samples."""
_RECORDED: Final = "recorded_episodes"


class _Loaded(NamedTuple):
    """A policy with its specification and discount, and the data module and checkpoint of its run, if it is one."""

    policy: Policy
    spec: Spec
    gamma: float
    data: Any = None
    checkpoint: Path | None = None


def estimate(
    agent: Any,
    episodes: Any,
    behaviour: Any = "clone",
    *,
    estimators: Sequence[str] = ESTIMATORS,
    gamma: float | None = None,
    deterministic: bool = False,
    n_fits: int = 5,
    fitted_q: FittedQOptions | None = None,
    seed: int = 0,
    trust: bool = False,
    progress: bool = False,
    checkpoint: str = BEST,
) -> OffPolicyEvaluation:
    """Estimate the expected return of an agent from episodes that another policy has recorded.

    Weighted estimators need the probabilities of the recorded acts under the policy that recorded
    them. Fitted Q evaluation does not. Doubly robust estimators use both.

    Args:
        agent: A run directory or a checkpoint, an algorithm, or a policy; policies need a `spec`.
        episodes: A file or a folder with recorded episodes, a record, or a sequence of these.
        behaviour: The policy that recorded them: a run directory, a checkpoint, an algorithm, a
            policy of networks or with a method `probabilities`, `random`, or `clone` for a policy that
            is learned from the recorded acts.
        estimators: Names of the estimators.
        gamma: Discount of an environment step; None for that of the agent, 1 if it has none.
        deterministic: Whether the agent takes its most likely actions; fitted Q evaluation only.
        n_fits: Number of fits of the values, each on a sample of the episodes.
        fitted_q: Options of these fits.
        seed: Determines all random numbers.
        trust: Whether runs may name any class, and files with recorded states may be read, both of
            which runs their code.
        progress: Whether to show a progress bar, in a file a line every 10 s.
        checkpoint: Checkpoint of the agent's run: `best`, `last`, or a file.

    Raises:
        ConfigurationError: Agent or behaviour cannot be loaded.
        ValueError: Episodes cannot be read or do not fit, a policy has no probabilities, or an
            option is out of range.

    Example:
        >>> from maze_pl.agents import RandomPolicy
        >>> from maze_pl.envs import GymMazeEnv
        >>> from maze_pl.runs.rollout import rollout
        >>> played = rollout(lambda: GymMazeEnv("CartPole-v1"), "random", episodes=4)
        >>> record = played[0].spaces
        >>> policy = RandomPolicy({0: record.spec.steps[0].action_space})
        >>> policy.spec = record.spec
        >>> found = estimate(policy, [one.spaces for one in played], "random", estimators=["per_decision"], gamma=1.0)
        >>> found["per_decision"].value == found.recorded.value
        True
    """
    unknown = sorted(set(estimators) - set(ESTIMATORS))
    if unknown or not estimators:
        raise ValueError(f"estimators={list(estimators)!r}: choose any of {', '.join(ESTIMATORS)}")
    check_count("n_fits", n_fits, 2)
    is_weighted = bool(set(estimators) - {FITTED_Q})
    if deterministic and is_weighted:
        remedy = f"ask for {FITTED_Q} only, or evaluate the agent that samples its actions"
        raise ValueError(f"deterministic actions have no probabilities to weight episodes by: {remedy}")
    loaded = _loaded(agent, trust, checkpoint)
    policy, data = loaded.policy, loaded.data
    of_behaviour = _data_of(behaviour, trust)
    gamma = loaded.gamma if gamma is None else gamma
    check_fraction(gamma=gamma)
    require_memoryless(policy, _name(agent))
    acts = read_acts(entries_of(episodes), loaded.spec, None if data is None else data.make_env, trust)
    named = None if of_behaviour is None else behaviour
    of_records = doubts_of_records(acts, loaded.checkpoint, named, trust)
    log_ratio = np.zeros(len(acts.reward))
    of_clone = math.nan
    if is_weighted:
        of_agent = log_probs(policy, acts, _name(agent))
        recorded, of_clone = _behaviour_log_probs(behaviour, acts, episodes, seed, trust, progress)
        log_ratio = of_agent - recorded
    plain = WeightedEpisodes(acts.padded(acts.reward), acts.discounts(gamma), acts.padded(log_ratio))
    counts = _resampled(acts.n_episodes, seed)
    results: dict[str, OffPolicyEstimate] = {}
    for name in WEIGHTING:
        if name in estimators:
            results[name] = _bootstrapped(name, WEIGHTING[name], plain, counts)
    has_model = bool({FITTED_Q, *DOUBLY_ROBUST} & set(estimators))
    if has_model:
        model = FittedQ(acts, policy, gamma, seed, deterministic=deterministic, options=fitted_q)
        fits, of_fits = _fits(model, acts, n_fits, seed, progress, fitted_q or FittedQOptions())
        results[FITTED_Q] = _of_fits(fits, of_fits)
        modelled = WeightedEpisodes(plain.reward, plain.discount, plain.log_ratio, _mean_of(fits))
        for name in DOUBLY_ROBUST:
            if name in estimators:
                results[name] = _bootstrapped(name, DOUBLY_ROBUST[name], modelled, counts)
    size = effective_sample_size(plain) if is_weighted else math.nan
    unit = unit_of_rewards(entries_of(episodes), _wrappers_of_runs(behaviour, of_behaviour, data), trust)
    doubts = [*doubts_of_estimates(size, acts, log_ratio, gamma if has_model else None), *unit.warnings]
    if is_weighted:
        doubts += doubts_of_weights(plain, size)
    returns = plain.returns.tolist()
    interval = t_interval(returns) if len(returns) > 1 else None
    return OffPolicyEvaluation(
        policy=_name(agent),
        behaviour=_name(behaviour) if is_weighted else "",
        gamma=gamma,
        n_episodes=acts.n_episodes,
        n_acts=len(acts.reward),
        recorded=OffPolicyEstimate(_RECORDED, float(np.mean(returns)), interval),
        effective_sample_size=size,
        clone_log_prob=of_clone,
        estimates=[results[name] for name in ESTIMATORS if name in estimators],
        warnings=[*doubts, *of_records],
        reward_wrappers=unit.wrappers,
        reward_source=unit.source,
    )


def _name(policy: Any) -> str:
    """Name of a policy for tables and messages."""
    return str(policy) if isinstance(policy, str | Path) else type(policy).__name__


def _policy_of(agent: Any) -> Any:
    """Return the policy of an algorithm; anything else as it is, even if it has a policy inside."""
    return agent.acting_policy() if isinstance(agent, ActsOnObservations) else agent


def _loaded(agent: Any, trust: bool, checkpoint: str = BEST) -> _Loaded:
    """Load an agent, if it is a run or a checkpoint, and return what belongs to it."""
    data = None
    path = None
    if isinstance(agent, str | Path):
        if not Path(agent).exists():
            raise ConfigurationError(f"there is no run directory or checkpoint {agent}")
        path = named_checkpoint(agent, checkpoint)
        data = load_data(path, trust=trust)
        agent = load(path, trust=trust)
    policy = _policy_of(agent)
    spec = getattr(policy, "spec", None)
    if not isinstance(policy, Policy) or not isinstance(spec, Spec):
        remedy = "give a run directory, an algorithm, or a policy whose attribute spec is Spec.of(env)"
        raise ValueError(f"{agent!r} is not an agent: {remedy}")
    return _Loaded(policy, spec, float(getattr(agent, "gamma", 1.0)), data, path)


def _data_of(behaviour: Any, trust: bool) -> Any:
    """Return the data module of the behaviour if it is a run; None otherwise."""
    is_name = isinstance(behaviour, str | Path) and str(behaviour) not in ("clone", "random")
    is_run = is_name and Path(behaviour).exists()
    return load_data(behaviour, trust=trust) if is_run else None


def _wrappers_of_runs(behaviour: Any, of_behaviour: Any, data: Any) -> dict[str, list[str]]:
    """Return the class names of the wrappers that change rewards in the runs of behaviour and agent."""
    found: dict[str, list[str]] = {}
    if of_behaviour is not None:
        found[f"the run {behaviour}"] = reward_wrappers_in(of_behaviour.rollout_options["wrappers"])
    if data is not None:
        found[AGENT] = reward_wrappers_in(data.rollout_options["wrappers"])
    return found


def _behaviour_log_probs(
    behaviour: Any, acts: RecordedActs, episodes: Any, seed: int, trust: bool, progress: bool
) -> tuple[Array, float]:
    """[A] log-probabilities of the recorded acts under the policy that recorded them.

    Returns:
        These, and the mean of a clone for acts that it was not trained on; NaN without a clone.

    Raises:
        ValueError: An act has the probability 0, so that this policy did not record it.
    """
    name = _name(behaviour)
    of_clone = math.nan
    if name == "clone":
        clone = clone_of(acts, seed, progress)
        policy: Policy = clone.policy
        of_clone = clone.held_out_log_prob
    elif name == "random":
        actions = {key: step.action_space for key, step in acts.spec.steps.items()}
        policy = RandomPolicy(actions, {key: step.masks for key, step in acts.spec.steps.items()})
    elif isinstance(behaviour, str | Path):
        loaded = _loaded(behaviour, trust)
        policy = loaded.policy
        make_env = None if loaded.data is None else loaded.data.make_env
        agent_acts, acts = acts, read_acts(entries_of(episodes), loaded.spec, make_env, trust)
        _require_same_acts(agent_acts, acts, name)
    else:
        policy = _policy_of(behaviour)
    found = log_probs(policy, acts, name)
    if np.isneginf(found).any():
        n_impossible = int(np.isneginf(found).sum())
        remedy = "name the policy that recorded them, or clone"
        raise ValueError(f"{n_impossible:,} recorded acts have the probability 0 under {name}: {remedy}")
    return found, of_clone


def _require_same_acts(acts: RecordedActs, of_behaviour: RecordedActs, name: str) -> None:
    """Refuse a behaviour whose environment makes other acts of the recorded states than the agent's.

    Raises:
        ValueError: The numbers of acts of an episode, or their times, differ.
    """
    is_same = np.array_equal(acts.lengths, of_behaviour.lengths)
    if not (is_same and np.array_equal(acts.time, of_behaviour.time)):
        counts = f"{len(of_behaviour.reward):,} acts for {name} and {len(acts.reward):,} for the agent"
        reason = "their environments divide steps into sub-steps differently"
        remedy = "clone the behaviour, or use fitted_q only"
        raise ValueError(f"the recorded episodes have {counts}: {reason}; {remedy}")


def _resampled(n_episodes: int, seed: int) -> Array:
    """[R, E] counts of the episodes in bootstrap samples."""
    generator = np.random.default_rng(seed)
    counts: Array = generator.multinomial(n_episodes, np.full(n_episodes, 1.0 / n_episodes), N_RESAMPLES)
    return counts.astype(np.float64)


def _bootstrapped(name: str, estimator: Estimator, episodes: WeightedEpisodes, counts: Array) -> OffPolicyEstimate:
    """Estimate with its percentile interval over bootstrap samples (Efron 1979)."""
    value = float(estimator(episodes, np.ones((1, episodes.n_episodes)))[0])
    n_together = max(1, _MOST_VALUES // max(1, episodes.reward.size))
    parts = [estimator(episodes, counts[start : start + n_together]) for start in range(0, len(counts), n_together)]
    return OffPolicyEstimate(name, value, _percentiles(np.concatenate(parts)))


def _percentiles(samples: Array) -> Interval | None:
    """Interval that holds 95% of the samples; None if fewer than half of them are numbers."""
    finite = samples[np.isfinite(samples)]
    if len(finite) < len(samples) / 2 or len(finite) < 2:
        return None
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(low), float(high)


def _fits(
    model: FittedQ, acts: RecordedActs, n_fits: int, seed: int, progress: bool, options: FittedQOptions
) -> tuple[list[ModelValues], list[Array]]:
    """Fit the values on bootstrap samples of the episodes; also return the counts [E] of the episodes in each."""
    generator = np.random.default_rng([seed, n_fits])
    shares = np.full(acts.n_episodes, 1.0 / acts.n_episodes)
    fits = []
    of_fits = []
    shown = bar_options("fitted Q evaluation", progress)
    with tqdm(total=n_fits * options.n_updates, leave=False, **shown) as bar:
        for number in range(n_fits):
            counts = generator.multinomial(acts.n_episodes, shares)
            while not model.can_fit(counts):
                counts = generator.multinomial(acts.n_episodes, shares)
            fits.append(model.fit(counts, number, bar.update))
            of_fits.append(counts)
    return fits, of_fits


def _of_fits(fits: Sequence[ModelValues], counts: Sequence[Array]) -> OffPolicyEstimate:
    """Mean of the fits over all starts, with an interval from the spread of the bootstrap samples.

    Args:
        fits: Values of each fit.
        counts: [E] counts of the episodes in the sample of each fit, in which the starts vary, too.
    """
    value = float(np.mean([fit.before[:, 0].mean() for fit in fits]))
    sampled = [float(count @ fit.before[:, 0] / count.sum()) for fit, count in zip(fits, counts, strict=True)]
    spread = float(np.std(sampled, ddof=1))
    low, high = t_interval(sampled)
    half = 0.5 * (high - low) * math.sqrt(len(sampled)) if spread else 0.0
    return OffPolicyEstimate(FITTED_Q, value, (value - half, value + half))


def _mean_of(fits: Sequence[ModelValues]) -> ModelValues:
    """Mean of the values of several fits."""
    return ModelValues(
        of_acts=np.mean([fit.of_acts for fit in fits], axis=0),
        before=np.mean([fit.before for fit in fits], axis=0),
        tail=np.mean([fit.tail for fit in fits], axis=0),
    )
