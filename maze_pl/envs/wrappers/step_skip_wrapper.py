"""Several environment steps for each decision."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.spaces import environment_action
from maze_pl.envs.contract import EnvContractError, name_of
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepParts, StepResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, Wrapper, wrappers_of


class StepSkipWrapper(Wrapper):
    """Takes several environment steps per decision: one by the agents, then skipped ones.

    Agents decide on all sub-steps of an environment step before the skipped steps follow.
    Environment time counts all steps, and with it time limits and discounting. Rewards are summed;
    where they are attributed, for each actor, at its last act. Events belong to the environment
    step in which they are fired. Records hold the decision, with the rewards and events of all its
    steps. Skipping stops at the end of an episode.

    Masks are ignored in skipped steps. An actor that has not acted in the decided step does nothing
    in the skipped ones, and its rewards there are not attributed. It must not end in a skipped step
    unless the episode terminates in the same decision, because its end would go unnoticed; this
    raises an error.

    Args:
        env: The environment to wrap.
        n_steps: Environment steps per decision, including the decided one.
        skip_mode: Actions in skipped steps: `sticky` repeats the decided ones, `noop` does nothing.
        noop_actions: Step key -> head -> value of the action that does nothing; by default the
            result of `noop_action` of the action conversion.

    Attributes:
        n_steps: As given.
        skip_mode: As given.

    Raises:
        TypeError: An action that does nothing is needed but unknown.
        ValueError: An argument is out of range or outside its space, or the number of agents
            changes during an episode.
        EnvContractError: In `step`, if an agent that has not acted in the decided step has ended in
            a skipped one, and the episode has not terminated.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = StepSkipWrapper(GymMazeEnv("Pendulum-v1"), n_steps=4)
        >>> _ = env.reset(seed=1)
        >>> _ = env.step(env.action_space.sample())
        >>> env.get_env_time()
        4
    """

    takes_steps = True

    def __init__(
        self,
        env: StructuredEnv,
        n_steps: int,
        skip_mode: Literal["sticky", "noop"] = "sticky",
        noop_actions: Mapping[StepKey, Mapping[str, Any]] | None = None,
    ) -> None:
        super().__init__(env)
        if n_steps < 1 or skip_mode not in ("sticky", "noop"):
            raise ValueError(f"n_steps={n_steps} must be at least 1, and skip_mode={skip_mode!r} 'sticky' or 'noop'")
        if min(env.agent_counts_dict.values()) < 1:
            raise ValueError(
                "StepSkipWrapper needs a fixed number of agents: those that come in skipped steps have no action"
            )
        self.n_steps, self.skip_mode = n_steps, skip_mode
        self._given_noops = self._checked(noop_actions or {})
        self._noops = {key: self._noop(key) for key in env.agent_counts_dict} if skip_mode == "noop" else {}
        self._acted: list[ActorID] = []  # actors of the decided environment step
        self._actions: dict[ActorID, Action] = {}  # actions that they repeat
        self._rewards: Array | None = None
        self._complete, self._is_done = True, False
        self._done_actors: list[ActorID] = []

    def _checked(self, noop_actions: Mapping[StepKey, Mapping[str, Any]]) -> dict[StepKey, Action]:
        """Convert the given actions to the types of their spaces."""
        known, actions = self.env.action_spaces_dict, dict[StepKey, Action]()
        for key, named in noop_actions.items():
            heads = known[key].spaces if key in known else {}
            action = {head: np.array(value, heads[head].dtype) for head, value in named.items() if head in heads}
            if key not in known or set(named) != set(heads) or not known[key].contains(action):
                wanted = {key: dict(space.spaces) for key, space in known.items()}
                raise ValueError(f"noop_actions={dict(noop_actions)} do not fit the action spaces {wanted}")
            actions[key] = {head: environment_action(heads[head], value) for head, value in action.items()}
        return actions

    def _noop(self, key: StepKey) -> Action:
        """Action that does nothing in a sub-step."""
        if key in self._given_noops:
            return self._given_noops[key]
        conversions: Mapping[StepKey, Any] = self.env.action_conversion_dict  # type: ignore[attr-defined]
        remedy = f"give StepSkipWrapper noop_actions={{{key!r}: {{head: value}}}}"
        if set(conversions) != set(self.env.action_spaces_dict):
            raise TypeError(f"sub-step {key!r} is made by a wrapper and has no action conversion; {remedy}")
        try:
            action = conversions[key].noop_action()
        except TypeError as error:
            raise TypeError(f"{error}, or {remedy}") from error
        for wrapper in reversed([w for w in wrappers_of(self.env) if issubclass(type(w), ActionWrapper)]):
            action = cast(ActionWrapper, wrapper).reverse_action(action)
        return cast(Action, action)

    def step_in_parts(self, action: Action) -> StepParts:
        """Perform an act and, if it completes an environment step, the skipped steps."""
        env = self.env
        time, actor = env.get_env_time(), env.actor_id()
        if self._complete:
            self._acted, self._actions = [], {}
        self._acted.append(actor)
        if not self._noops:
            self._actions[actor] = action
        result: StepResult = yield action
        _, _, terminated, truncated, _ = result
        self._is_done = env.is_actor_done()
        self._complete = bool(env.get_env_time() != time or terminated or truncated)
        if not self._complete:
            return result
        self._rewards = env.get_actor_rewards()
        self._done_actors = [ActorID(*actor) for actor in env.get_done_actors()]
        return (yield from self._skip(result))

    def _skip(self, decided: StepResult) -> StepParts:
        """Perform the skipped steps as a generator; the reward is the sum over all steps of the decision.

        Args:
            decided: Result of the act that has completed the decided step.

        Raises:
            EnvContractError: An agent has ended, and the episode has not terminated.
        """
        env = self.env
        observation, total, terminated, truncated, info = decided
        was_decision, self.context.is_decision = self.context.is_decision, False
        ended: list[ActorID] = []  # actors that have ended in skipped steps
        for _ in range(self.n_steps - 1):
            acted: list[ActorID] = []
            time = env.get_env_time()
            while env.get_env_time() == time and not (terminated or truncated):
                actor = env.actor_id()
                acted.append(actor)
                action = self._actions.get(actor) or self._noops.get(actor.step_key) or self._noop(actor.step_key)
                observation, reward, terminated, truncated, info = yield action
                total += reward
                if env.is_actor_done():
                    ended.append(actor)
            if acted:
                self._credit(acted)
                ended += [ActorID(*actor) for actor in env.get_done_actors()]
        self.context.is_decision = was_decision
        self._done_actors += [actor for actor in ended if actor in self._acted]
        unnoticed = [actor for actor in ended if actor not in self._acted]
        if unnoticed and not terminated:
            self._refuse_end(unnoticed[-1])
        return observation, total, terminated, truncated, info

    def _refuse_end(self, actor: ActorID) -> None:
        """Raise an error, as an actor that has taken no part in the decision has ended but the episode has not."""
        key, agent_id = actor
        came = f"agent {agent_id} of sub-step {key!r} of {name_of(self)} ended in a skipped step"
        fault = "it had not acted in the decided one, so that nothing can learn of its end"
        remedy = "leave StepSkipWrapper out, or let agents stay until the episode ends"
        raise EnvContractError(f"{came}, but {fault}; {remedy}")

    def _credit(self, acted: list[ActorID]) -> None:
        """Add the rewards of a skipped step to its actors' last acts in the decided step."""
        rewards = self.env.get_actor_rewards()
        if rewards is not None and self._rewards is not None:
            last = {actor: place for place, actor in enumerate(self._acted)}
            self._rewards = self._rewards.copy()
            for actor, reward in zip(acted, rewards, strict=True):
                if actor in last:
                    self._rewards[last[actor]] += reward

    def is_actor_done(self) -> bool:
        """True if the actor that just acted was done before the skipped steps."""
        return self._is_done

    def get_done_actors(self) -> Sequence[ActorID]:
        """Return the actors of the decided step that have ended in it after their acts, or in skipped steps."""
        return self._done_actors if self._complete else self.env.get_done_actors()

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the decided step, plus those of skipped steps, if attributed."""
        return self._rewards if self._complete else self.env.get_actor_rewards()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        self._complete, self._is_done = True, False
        return self.env.reset(seed=seed, options=options)
