"""Policy that searches before it acts."""

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from maze_pl.agents.torch_policy import TorchPolicy
from maze_pl.agents.torch_state_critic import StateCritic
from maze_pl.core.policy import Array, EnvPolicy, Policy, PolicyBatch, PolicyStep, evaluation_mode
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.search.beam import Beam
from maze_pl.search.best_of import BestOf
from maze_pl.search.decision import Decision, PlannedAct
from maze_pl.search.lookahead import Lookahead
from maze_pl.search.policy_calls import PolicyCalls
from maze_pl.search.puct import Puct
from maze_pl.search.search_error import SearchError
from maze_pl.search.search_method import SearchMethod
from maze_pl.search.search_options import DEFAULT_HORIZON, SearchOptions
from maze_pl.search.simulation import Simulation
from maze_pl.search.value_function import ValueFunction


@dataclass(frozen=True)
class _Plan:
    """The rest of a plan that a search has made in an environment.

    Attributes:
        episode: Number of the episode.
        n_acts: Acts in the episode before the first one of the plan.
        acts: Acts in order, at least one.
    """

    episode: int
    n_acts: int
    acts: list[PlannedAct]


class SearchPolicy(EnvPolicy):
    """Policy that tries actions in copies of the environment before it acts.

    Args:
        policy: The policy that guides the search; it may not be recurrent.
        options: Method and budget.
        spec: Observations and actions of the actors.
        make_env: Makes an environment like those in which it acts, for simulations. The first call
            of `act` calls it.
        seed: Source of all randomness.
        rule: Policy that plays on, for `lookahead`; None for `policy`.
        critic: Critic for `puct`, where None means the returns of episodes that the policy plays,
            and for `lookahead:policy` with a horizon, where None means that nothing counts after it.
        gamma: Discount of an environment step, where the critic is used.

    Raises:
        SearchError: The policy is recurrent, or an action is continuous where the method needs discrete
            ones.
    """

    def __init__(
        self,
        policy: Policy,
        options: SearchOptions,
        spec: Spec,
        make_env: Callable[[], Any],
        seed: int,
        *,
        rule: Policy | None = None,
        critic: StateCritic | None = None,
        gamma: float = 1.0,
    ) -> None:
        for one in (policy, rule):
            if isinstance(one, TorchPolicy) and any(one.parts_of(key).state_shapes for key in spec.step_keys):
                raise SearchError("the policy is recurrent: search keeps no policy states in its simulations")
        if options.method != "best_of":
            _require_discrete(spec)
        self.policy = policy
        self.options = options
        self._spec = spec
        self._make_env = make_env
        self._seed = seed
        self._rule = policy if rule is None else rule
        self._critic = critic
        self._gamma = gamma
        self._spare: list[Simulation] = []
        self._plans: dict[int, _Plan] = {}  # by environment, so that a plan that is not used up is replaced
        is_of_actors = critic is not None and critic.kind == "step" and not spec.is_flat
        self._may_warn = is_of_actors and self._uses_critic

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
    ) -> PolicyStep:
        """Search for the next action of each actor.

        The result depends on the seed, the episode and the number of the act alone, unless the budget is a time.

        Raises:
            SearchError: The environment cannot be copied.
        """
        if batch.envs is None or batch.episode_index is None or batch.n_acts is None:
            raise ValueError("search needs the environments: use it in maze_pl.rollout, compare or a deployment")
        method = self._method(temperature)
        actions = []
        for row, env in enumerate(batch.envs):
            place = row if batch.env_index is None else int(batch.env_index[row])
            episode, n_acts = int(batch.episode_index[row]), int(batch.n_acts[row])
            observation = {name: values[row].copy() for name, values in batch.observation.items()}
            acts = self._following(place, episode, n_acts, env, observation)
            if not acts:
                decision = Decision(
                    env,
                    observation,
                    derive_seed(self._seed, "search", episode, n_acts),
                    make_env=self._make_env,
                    spec=self._spec,
                    spare=self._spare,
                    deterministic=deterministic,
                    milliseconds=self.options.milliseconds,
                )
                acts = self._plan(method, decision)
                if self._may_warn:
                    self._warn_of_values_of_actors()
            if len(acts) > 1:
                self._plans[place] = _Plan(episode, n_acts + 1, acts[1:])
            actions.append(acts[0].action)
        heads = self._spec.steps[batch.step_key].action_space.spaces
        return PolicyStep({head: _stacked(heads[head], [action[head] for action in actions]) for head in heads})

    def close(self) -> None:
        """Close the environments of the simulations."""
        with ExitStack() as stack:
            for simulation in self._spare:
                stack.callback(simulation.env.close)
        self._spare.clear()
        self._plans.clear()

    def _plan(self, method: SearchMethod, decision: Decision) -> list[PlannedAct]:
        """Search with all networks in evaluation mode, also where the caller has switched none of them."""
        with ExitStack() as stack:
            for networks in (self.policy, self._rule, self._critic):
                stack.enter_context(evaluation_mode(networks))
            return method.plan(decision)

    @property
    def _uses_critic(self) -> bool:
        """True if values of states are those of the critic."""
        options = self.options
        if options.method == "lookahead":
            stops_early = options.rule == "policy" and options.horizon < DEFAULT_HORIZON
            return stops_early and self._critic is not None
        return options.method == "puct" and self._critic is not None

    def _warn_of_values_of_actors(self) -> None:
        """Warn once if the value of a state is not what all actors expect from there on.

        This is known when a simulation has completed an environment step.
        """
        complete = [one for one in self._spare if one.n_acts and one.is_between_env_steps]
        if not complete:
            return
        self._may_warn = False
        if complete[0].env.get_actor_rewards() is not None:
            known = "what the actor that acts next earns itself"
        elif any(step.n_agents < 0 for step in self._spec.steps.values()):
            known = "what happens until the actor that acts next is done"
        else:
            return
        fault = f"the step critic only knows {known}, but a search looks for what is best for all actors"
        effect = "a good action can look worse than a bad one"
        remedy = "use best_of or lookahead without a horizon, or train with a shared critic"
        warnings.warn(f"search {self.options}: {fault}, so that {effect}; {remedy}", UserWarning, stacklevel=3)

    def _following(
        self, place: int, episode: int, n_acts: int, env: Any, observation: dict[str, Array]
    ) -> list[PlannedAct]:
        """Take the plan of an environment; empty unless it is for this act and all has happened as planned.

        An act that was not asked for here, such as one that a person has chosen, ends the plan.
        """
        plan = self._plans.pop(place, None)
        if plan is None or (plan.episode, plan.n_acts) != (episode, n_acts):
            return []
        return plan.acts if plan.acts[0].fits(env.actor_id(), observation) else []

    def _method(self, temperature: float) -> SearchMethod:
        """Make the method."""
        options = self.options
        calls = PolicyCalls(self.policy, self._spec, temperature, options.max_actions, options.min_ratio)
        if options.method == "best_of":
            return BestOf(calls, options)
        if options.method == "beam":
            return Beam(calls, options)
        n_sub_steps = len(self._spec.steps)
        values = ValueFunction(calls, self._critic, self._gamma, n_sub_steps, options.horizon)
        if options.method == "lookahead":
            rule = PolicyCalls(self._rule, self._spec, temperature, options.max_actions)
            if self._uses_critic:
                return Lookahead(calls, rule, options, values, self._gamma)
            return Lookahead(calls, rule, options)
        return Puct(calls, values, self._gamma, options)


def _require_discrete(spec: Spec) -> None:
    """Raise SearchError if an action is continuous."""
    for key, step in spec.steps.items():
        for head, space in step.action_space.spaces.items():
            if isinstance(space, spaces.Box):
                remedy = "only best_of can search continuous actions"
                raise SearchError(f"head {head!r} of sub-step {key!r} is {space}: {remedy}")


def _stacked(space: Any, values: list[Any]) -> Array:
    """[B, *space.shape] the actions of a head."""
    return np.array(values, space.dtype)
