"""The policy of a deployment, with the policy states of the actors of an episode."""

from typing import Any

import numpy as np
import torch

from maze_pl.agents.best_actions import best_actions
from maze_pl.agents.input_range import largest_input, too_large
from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.allowed_options import forbidden_choice
from maze_pl.core.exact_numbers import overflow_of
from maze_pl.core.policy import Array, EnvPolicy, Policy, PolicyBatch, PolicyStep
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spaces import rollout_action
from maze_pl.core.spec import Spec
from maze_pl.deployment.assembling import without_statistics
from maze_pl.deployment.prepared_conversion import is_finite
from maze_pl.deployment.state_readers import reads_state, without_search
from maze_pl.envs.contract import EnvContractError
from maze_pl.envs.structured_env import Action, Observation
from maze_pl.runs.bundle_policy import BundlePolicy
from maze_pl.search import SearchPolicy

_State = dict[str, Array]
_TRUE, _FALSE = np.array([True]), np.array([False])


class _ActorStates:
    """States of the actors of an episode after their last acts; zero for those that have not acted."""

    def __init__(self) -> None:
        self._states: dict[ActorID, _State] = {}
        self._zeros: dict[StepKey, _State] = {}

    def of(self, actor: ActorID) -> _State | None:
        """Return the state of an actor, name -> [1, ...]; None if no actor of its sub-step has had one."""
        return self._states.get(actor, self._zeros.get(actor.step_key))

    def keep(self, actor: ActorID, state: _State | None) -> None:
        """Keep the state of an actor after its act; None for a policy without one."""
        if state is None:
            return
        self._states[actor] = state
        if actor.step_key not in self._zeros:
            self._zeros[actor.step_key] = {name: np.zeros_like(array) for name, array in state.items()}

    def forget(self, actor: ActorID) -> None:
        """Forget the state of an actor."""
        self._states.pop(actor, None)

    def clear(self) -> None:
        """Forget the episode."""
        self._states.clear()
        self._zeros.clear()


class Decider:
    """Asks a policy for one actor at a time, as a rollout of one environment does.

    Args:
        policy: The policy; networks must be in evaluation mode.
        spec: Observations and actions of the actors.
        deterministic: Whether the most likely actions are taken.
        temperature: Above 1 flattens the distributions, below 1 sharpens them.
        seed: Determines the sampled actions of each episode; None gives different ones each time.
        env: The environment, for policies that use the state of the simulation or copy it.

    Attributes:
        policy: The policy.
        spec: The specification.
    """

    def __init__(
        self, policy: Policy, spec: Spec, deterministic: bool, temperature: float, seed: int | None, env: Any
    ) -> None:
        self.policy = policy
        self._env = without_statistics(env)
        self._envs = [self._env] if isinstance(policy, EnvPolicy) else None
        self.spec = spec
        self._temperature = temperature
        self._deterministic = deterministic
        self._seed = seed
        self._generator = torch.Generator()
        if seed is None:
            self._generator.seed()
        guide = without_search(policy)
        self._unbounded = guide.unbounded if isinstance(guide, BundlePolicy) else {}
        self._reads_state = reads_state(policy)
        self._largest = {key: largest_input(guide, key) for key in spec.step_keys}
        self._dtypes: dict[StepKey, list[tuple[str, np.dtype[Any]]]] = {}
        self._heads: dict[StepKey, list[tuple[str, Any]]] = {}
        for key, step in spec.steps.items():
            observations = step.observation_space.spaces.items()
            self._dtypes[key] = [(name, np.dtype(part.dtype)) for name, part in observations]
            self._heads[key] = list(step.action_space.spaces.items())
        self._policy_states = _ActorStates()
        self._noise_states = _ActorStates()
        self._has_acted: set[ActorID] = set()
        self._agent_ids = np.zeros(1, np.int64)  # of the last batch
        self._episode_index = np.zeros(1, np.int64)
        self._n_acts = 0

    def close(self) -> None:
        """Close the environments of a search."""
        if isinstance(self.policy, SearchPolicy):
            self.policy.close()

    def begin_episode(self, index: int) -> None:
        """Forget the previous episode."""
        self._policy_states.clear()
        self._noise_states.clear()
        self._has_acted.clear()
        self._episode_index = np.array([index])
        self._n_acts = 0
        if self._seed is not None:
            self._generator.manual_seed(derive_seed(self._seed, "policy", index))

    def end_step(self, actor: ActorID) -> None:
        """Forget an actor that is done with its step where agents come and go; others keep their states."""
        if self.spec.steps[actor.step_key].n_agents < 0 and self._env.is_actor_done():
            self._policy_states.forget(actor)
            self._noise_states.forget(actor)
            self._has_acted.discard(actor)

    def batch_of(self, actor: ActorID, observation: Observation) -> PolicyBatch:
        """Make the policy batch of one actor; as in a rollout, only policies that use states get one.

        Raises:
            EnvContractError: An observation holds a value that is not finite, also after conversion to
                the type of the networks, or an integer that its type cannot hold.
        """
        key, agent = actor
        largest = self._largest[key]
        arrays = {}
        for name, dtype in self._dtypes[key]:
            given = np.asarray(observation[name])
            if given.dtype != dtype and (overflow := overflow_of(given, dtype)) is not None:
                raise EnvContractError(f"observation {name!r} of sub-step {key!r} {overflow}")
            array = np.asarray(given, dtype)
            may_be_infinite = name in self._unbounded.get(key, ())
            if dtype.kind == "f" and not is_finite(array) and not (may_be_infinite and not np.isnan(array).any()):
                kind = "a number" if may_be_infinite else "finite"
                fault = f"observation {name!r} of sub-step {key!r} is not {kind} after the wrappers"
                raise EnvContractError(f"{fault}: {array.ravel()[:8]}; call reset to continue with another state")
            if size := too_large(array, largest):
                raise EnvContractError(f"observation {name!r} of sub-step {key!r} {size}; call reset to continue")
            arrays[name] = array[np.newaxis].copy()  # in the layout of a rollout, on which rounding depends
        return PolicyBatch(
            step_key=key,
            observation=arrays,
            agent_id=self._agent_id(agent),
            policy_state=self._policy_states.of(actor),
            is_first=_FALSE if actor in self._has_acted else _TRUE,
            maze_state=[self._env.get_simulation_state()] if self._reads_state else None,
            episode_index=self._episode_index,
            n_acts=np.array([self._n_acts]),
            noise_state=self._noise_states.of(actor) or {},
        )

    def _agent_id(self, agent: int) -> Array:
        """Return an agent's id as a batch of one; most systems have the same agent in all steps."""
        if self._agent_ids[0] != agent:
            self._agent_ids = np.array([agent])
        return self._agent_ids

    def choose(self, actor: ActorID, batch: PolicyBatch) -> Action:
        """Let the policy choose the action of an actor.

        Raises:
            EnvContractError: A mask allows no option of a choice.
        """
        self._require_options(batch)
        batch.envs = self._envs
        step = self.policy.act(
            batch,
            deterministic=self._deterministic,
            temperature=self._temperature,
            generator=self._generator,
        )
        self._remember(actor, step)
        return self.action_of(actor.step_key, step.action)

    def follow(self, actor: ActorID, batch: PolicyBatch) -> None:
        """Keep the policy state up to date in an act that is chosen elsewhere."""
        policy = without_search(self.policy)
        self._remember(actor, policy.act(batch, deterministic=True, generator=torch.Generator()))

    def best_actions(self, batch: PolicyBatch, k: int) -> list[tuple[Action, float]]:
        """Return the k most likely actions with their probabilities; see `AgentDeployment.candidates`.

        Raises:
            EnvContractError: A mask allows no option of a choice.
        """
        self._require_options(batch)
        space = self.spec.steps[batch.step_key].action_space
        policy = without_search(self.policy)
        return best_actions(policy, batch, space, self._temperature, k)[0]

    def _require_options(self, batch: PolicyBatch) -> None:
        """Refuse masks that allow no option of a choice."""
        key = batch.step_key
        if forbidden := forbidden_choice(self.spec.steps[key], batch.observation):
            remedy = "call reset to continue with another state"
            raise EnvContractError(f"{forbidden} (sub-step {key!r}); {remedy}")

    def action_of(self, step_key: StepKey, values: dict[str, Array]) -> Action:
        """Convert a batch of one action to the action for the environment."""
        action: dict[str, Any] = {}
        for head, space in self._heads[step_key]:
            action[head] = rollout_action(space, values[head][0])
        return action

    def _remember(self, actor: ActorID, step: PolicyStep) -> None:
        """Keep the states of an actor after its act."""
        self._n_acts += 1
        self._has_acted.add(actor)
        self._policy_states.keep(actor, step.policy_state)
        self._noise_states.keep(actor, step.noise_state)
