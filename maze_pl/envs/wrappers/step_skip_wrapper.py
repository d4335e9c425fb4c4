"""Lets agents decide less often than simulations step."""

from typing import Any, Literal, cast

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.envs.structured_env import Action, Array, ResetResult, StepResult, StructuredEnv
from maze_pl.envs.wrapper import ActionWrapper, Wrapper, wrappers_of


class StepSkipWrapper(Wrapper):
    """Takes several environment steps with each decision: the first with the agents' actions, the others by itself.

    All sub-steps of an environment step are decided on before the others follow. Environment time, and so time limits
    and discounting, counts all steps. Rewards are summed up, where they are attributed for each actor, at its last act.
    Events belong to the step that the agent sees. Nothing is done after the end of an episode.

    In skipped steps masks are not looked at. An actor that has not acted in the decided step does nothing, and its
    rewards are nobody's. Where the number of agents changes during an episode, nobody would see their ends.

    Args:
        env: The environment to wrap.
        n_steps: Environment steps for each decision, the decided one included.
        skip_mode: What actors do in the other ones: `sticky`, the same once more, or `noop`, what their action
            conversion's `noop_action` returns.

    Raises:
        TypeError: An action conversion knows no action that does nothing, and it is needed.
        ValueError: An argument is out of range, or the number of agents changes during an episode.

    Example:
        >>> from maze_pl.envs import GymMazeEnv
        >>> env = StepSkipWrapper(GymMazeEnv("Pendulum-v1"), n_steps=4)
        >>> _ = env.reset(seed=1)
        >>> _ = env.step(env.action_space.sample())
        >>> env.get_env_time()
        4
    """

    def __init__(self, env: StructuredEnv, n_steps: int, skip_mode: Literal["sticky", "noop"] = "sticky") -> None:
        super().__init__(env)
        if n_steps < 1 or skip_mode not in ("sticky", "noop"):
            raise ValueError(f"n_steps={n_steps} must be at least 1, and skip_mode={skip_mode!r} 'sticky' or 'noop'")
        if min(env.agent_counts_dict.values()) < 1:
            raise ValueError("StepSkipWrapper needs numbers of agents that do not change: nobody would see their ends")
        self.n_steps = n_steps
        self._noops = {key: self._noop(key) for key in env.agent_counts_dict} if skip_mode == "noop" else {}
        self._acted: list[ActorID] = []  # in the environment step that agents decide on
        self._actions: dict[ActorID, Action] = {}  # which they repeat
        self._rewards: Array | None = None
        self._complete, self._is_done = True, False

    def _noop(self, key: StepKey) -> Action:
        action = self.env.action_conversion_dict[key].noop_action()  # type: ignore[attr-defined]
        for wrapper in reversed([w for w in wrappers_of(self.env) if issubclass(type(w), ActionWrapper)]):
            action = cast(ActionWrapper, wrapper).reverse_action(action)
        return cast(Action, action)

    def step(self, action: Action) -> StepResult:
        """Perform an act, and if it completes an environment step, the steps that are skipped."""
        env, time, actor = self.env, self.env.get_env_time(), self.env.actor_id()
        if self._complete:
            self._acted, self._actions = [], {}
        self._acted.append(actor)
        if not self._noops:
            self._actions[actor] = action
        observation, total, terminated, truncated, info = env.step(action)
        self._is_done = env.is_actor_done()
        self._complete = bool(env.get_env_time() != time or terminated or truncated)
        if self._complete:
            self._rewards = env.get_actor_rewards()
            for _ in range(self.n_steps - 1):
                acted, time = list[ActorID](), env.get_env_time()
                while env.get_env_time() == time and not (terminated or truncated):
                    acted.append(actor := env.actor_id())
                    action = self._actions.get(actor) or self._noops.get(actor.step_key) or self._noop(actor.step_key)
                    observation, reward, terminated, truncated, info = env.step(action)
                    total += reward
                self._credit(acted)
        return observation, total, terminated, truncated, info

    def _credit(self, acted: list[ActorID]) -> None:
        """Add the rewards of a skipped step to those of its actors' last acts in the decided one."""
        rewards = self.env.get_actor_rewards() if acted else None
        if rewards is not None and self._rewards is not None:
            last, self._rewards = {actor: i for i, actor in enumerate(self._acted)}, self._rewards.copy()
            for actor, reward in zip(acted, rewards, strict=True):
                if actor in last:
                    self._rewards[last[actor]] += reward

    def is_actor_done(self) -> bool:
        """Whether the actor that just acted was done before the skipped steps."""
        return self._is_done

    def get_actor_rewards(self) -> Array | None:
        """Rewards of the acts of the decided step, with those of the skipped ones, if they are attributed."""
        return self._rewards

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> ResetResult:
        """Start an episode."""
        self._complete, self._is_done = True, False
        return self.env.reset(seed=seed, options=options)
