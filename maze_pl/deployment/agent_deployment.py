"""A policy with conversions and wrappers, for a system that asks for actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from maze_pl.core.actor_id import ActorID, StepKey
from maze_pl.core.checks import check_count
from maze_pl.core.policy import PolicyBatch
from maze_pl.core.seeding import derive_seed
from maze_pl.deployment.agent_limits import agent_limits
from maze_pl.deployment.assembling import MakeDeployed, acting_policy, arguments_of_run, spec_of, with_bundle
from maze_pl.deployment.candidates import Candidate
from maze_pl.deployment.decider import Decider
from maze_pl.deployment.drift import DriftMonitor, ObservationDrift
from maze_pl.deployment.episode_summaries import EpisodeSummaries
from maze_pl.deployment.outside import Outside, Received
from maze_pl.deployment.stack_steps import PartResult, StackSteps
from maze_pl.deployment.state_readers import state_reader
from maze_pl.envs.structured_env import Observation
from maze_pl.events.attribute_values import copied
from maze_pl.runs.closed_on_error import closed_on_error

if TYPE_CHECKING:
    from pytorch_lightning.loggers import Logger

    from maze_pl.core.observation_sample import ObservationSample


class AgentDeployment:
    """Answers the states of a real system with actions, as the agent did in training.

    The environment provides conversions, wrappers and events; its simulation is never stepped. All
    wrappers are kept in step with the states: stacks of observations, time limits, skipped steps,
    statistics. One deployment belongs to one system and one thread; there can be any number of them.

    States of an episode must be given in order, each to one call of `act`. An episode begins with
    the first state, and with the first one after an end.

    Args:
        policy: As for `maze_pl.rollout`, or its configuration (`class_path` and `init_args`). Networks
            are copied. Wrappers that a bundle contains are taken out of the environment.
        env: The environment, a callable that makes it, or its configuration. The deployment owns and
            closes it.
        wrappers: Further wrappers: callables or configurations, the first one innermost; or a mapping from
            class paths to arguments.
        wrapper_statistics: Statistics of the wrappers, by name; None leaves those that they have.
        action_masks: Action head -> observation that is 1 where an action is allowed, else 0.
        max_agents: Maximum number of agents at the same time, for policies that need it.
        deterministic: Whether the most likely actions are taken instead of sampled ones.
        temperature: Above 1 flattens the policy's distributions, below 1 sharpens them.
        seed: Determines sampled actions and the wrappers' randomness, as in `maze_pl.rollout` with
            one environment; None gives different ones each time.
        search: Search before each decision, as for `maze_pl.rollout`; `env` must then make environments,
            and each call of `act` needs a simulation.
        reports_events: Whether the caller fires the simulation's events through `event_topic`, from
            which KPIs are computed.
        loggers: Lightning loggers, which receive the statistics at `close`.
        training_observations: Observations of training, as the policy saw them; for `drift`.

    Raises:
        TypeError: A wrapper cannot be kept in step, or something is neither an environment nor a policy.
        ValueError: Policy, environment and wrappers do not fit together.

    Attributes:
        env: The environment with its wrappers.
        needs_actor: False if one call of `act` decides on all sub-steps of an environment step.
            True if the simulation itself has several actors: each call decides for one of them,
            and names it by `actor_id` and `env_time`.
        is_running: Whether an episode is running.

    Example:
        >>> from maze_pl.agents import DummyCartPolePolicy
        >>> from maze_pl.envs import GymMazeEnv
        >>> deployment = AgentDeployment(policy=DummyCartPolePolicy, env=GymMazeEnv("CartPole-v1"))
        >>> deployment.act([0.0, 0.0, 0.1, 0.2])
        1
        >>> deployment.act([0.0, 0.2, 0.1, -0.3], reward=1.0)
        0
        >>> deployment.close()
    """

    def __init__(
        self,
        policy: Any,
        env: Any,
        wrappers: Sequence[Any] | Mapping[str, Any] = (),
        *,
        wrapper_statistics: Mapping[str, Any] | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        deterministic: bool = True,
        temperature: float = 1.0,
        seed: int | None = None,
        search: str | None = None,
        reports_events: bool = False,
        loggers: Sequence[Logger] = (),
        training_observations: ObservationSample | None = None,
    ) -> None:
        policy, contained = with_bundle(policy, temperature)
        make = MakeDeployed.of(env, wrappers, wrapper_statistics, action_masks, contained)
        self._loggers = tuple(loggers)
        self._monitor = DriftMonitor(training_observations)
        self._seed = None if seed is None else derive_seed(seed, "rollout")
        self.env = make()
        with closed_on_error(self.env, make.is_given):
            self._steps = StackSteps(self.env)
            spec = spec_of(self.env, max_agents)
            acting = acting_policy(policy, spec, self.env, search, make, seed)
            self._decider = Decider(acting, spec, deterministic, temperature, seed, self.env)
            self._outside = Outside(self.env, reports_events, state_reader(acting, self.env), agent_limits(acting))
            self._summaries = EpisodeSummaries(self.env)
            self._last_actor = self.env.actor_id()
        self.needs_actor = not self._outside.is_flat
        self.is_running = False
        self._n_episodes = 0
        self._observation: Observation | None = None  # while the policy has to decide
        self._answer: Any = None  # action in a skipped step that only `candidates` has asked for
        self._is_advancing = False  # True while the stack advances, and after an error in it
        self._is_closed = False

    @classmethod
    def from_run(
        cls,
        run: str | Path,
        *,
        policy: Any = None,
        env: Any = None,
        wrappers: Sequence[Any] | Mapping[str, Any] | None = None,
        trust: bool = False,
        **options: Any,
    ) -> Self:
        """Make the deployment of a trained agent, with the wrappers and statistics of its run.

        Args:
            run: A run directory, whose best or else last checkpoint is taken, or a checkpoint.
            policy: Replaces the run's policy; a bundle that contains wrappers has no `drift`.
            env: Replaces its environment.
            wrappers: Replace its wrappers; those of the same classes get the run's statistics.
            trust: Whether the run may name any class, because you know who made it.
            options: Further arguments of the class.

        Raises:
            ConfigurationError: There is no checkpoint, it was not written by `maze-pl`, it needs trust,
                or the wrappers lack a normalisation of the policy's training, or add one.
        """
        return cls(**arguments_of_run(run, trust, policy, env, wrappers, options))

    def act(
        self,
        maze_state: Any,
        reward: float = 0.0,
        terminated: bool = False,
        truncated: bool = False,
        info: dict[str, Any] | None = None,
        *,
        actor_id: tuple[StepKey, int] | None = None,
        env_time: int | None = None,
        is_actor_done: bool = False,
        actor_rewards: Sequence[float] | None = None,
        simulation: Any = None,
    ) -> Any:
        """Return the action of the simulation in a state.

        Everything but the state describes the step from the previous state, and is ignored in the
        first state of an episode.

        Args:
            maze_state: The state, as the simulation or the gymnasium environment returns it.
            reward: Reward of the previous action.
            terminated: Whether the episode has ended in this state.
            truncated: Whether it was cut off here.
            info: Further information about the step.
            actor_id: The actor that acts next: step key and agent. Needed if `needs_actor`, except
                at the end of an episode.
            env_time: Environment steps completed in the episode. Needed likewise; at the end, the
                step is complete if it is not given.
            is_actor_done: Whether the actor that has acted will not act again.
            actor_rewards: If rewards are attributed: those of the acts of a finished environment step.
            simulation: A simulation in this state, or an environment around it, which `search` copies;
                and which rules ask for its state, if that is not the one that conversions get.

        Returns:
            The action; None if the episode is over, because the caller says so or because a wrapper such as a time
            limit ends it. The next call then begins another episode; a system that continues passes the same state
            again.

        Raises:
            EnvContractError: The state or another argument is refused. Nothing has advanced, and the
                next call may give another one.
            MaskError: A mask is malformed.
            RuntimeError: The deployment is closed, an error interrupted the episode, or another
                state has no decision yet.
        """
        step = (reward, terminated, truncated, info)
        acts = (actor_id, env_time, is_actor_done, actor_rewards)
        outcome = self._observe(Received(maze_state, *step, *acts, simulation))
        while self._observation is not None:
            actor, batch = self._next_act()
            action = self._decider.choose(actor, batch)
            outcome = self._begin_step(actor, batch, action)
        return outcome

    def candidates(self, maze_state: Any, k: int, *step: Any, **named: Any) -> list[Candidate]:
        """Return the k most likely actions in a state, and leave the choice to the caller.

        The caller then passes one of them to `take`, or the same state to `act`. If several
        sub-steps are decided in one call, these are the actions of the next one. A state may be
        given again, for the next sub-step or another k.

        Args:
            maze_state: As for `act`.
            k: Number of actions.
            step: Further arguments of `act`.
            named: The same by name.

        Returns:
            Actions of positive probability, the most likely first; fewer if there are not as many,
            and none if the policy is not asked: when the episode is over (not `is_running`), and in
            skipped steps, where `act` then returns what is to be done.

        Raises:
            TypeError: The policy has no probabilities, or an action is continuous.
        """
        check_count("k", k, 1)
        self._answer = self._observe(Received(maze_state, *step, **named))
        if self._observation is None:
            return []
        actor, batch = self._next_act()
        found = []
        for action, probability in self._decider.best_actions(batch, k):
            found.append(Candidate(actor, action, probability, self._outside.preview(self.env, action)))
        return found

    def take(self, candidate: Candidate) -> Any:
        """Take an action that `candidates` has returned for the current state.

        Returns:
            The action of the simulation; None if another sub-step has to be decided first (ask
            `candidates` again, or `act`).

        Raises:
            ValueError: It is another actor's turn, or no actor has to act.
        """
        actor = self.env.actor_id()
        if self._observation is None or candidate.actor_id != actor:
            now = "no actor" if self._observation is None else actor
            raise ValueError(f"the candidate is for {candidate.actor_id}, but {now} has to act; call candidates first")
        actor, batch = self._next_act()
        self._decider.follow(actor, batch)
        return self._begin_step(actor, batch, candidate.action)

    def reset(self) -> None:
        """Abandon the running episode, whose statistics count up to here; the next state begins another one."""
        self._require_open()
        self._steps.abandon()
        self._observation = self._answer = None
        self._is_advancing = False
        self.env.close_episode()
        self._end_episode()

    def close(self, maze_state: Any = None, *step: Any, **named: Any) -> None:
        """End the episode, write the statistics, and close environment and wrappers; safe to call twice.

        Args:
            maze_state: State after the last action, if this step is to count; None if it is not.
            step: Further arguments of `act`.
            named: The same by name.
        """
        if self._is_closed:
            return
        with ExitStack() as parts:  # each is closed, also if another one fails
            if self._loggers:
                parts.callback(self.statistics, self._loggers)
            parts.callback(self._decider.close)
            parts.callback(self.env.close)
            parts.callback(setattr, self, "_is_closed", True)
            parts.callback(self.reset)
            if maze_state is not None and self.is_running and not self._is_advancing and self._observation is None:
                received = Received(maze_state, *step, **named)
                self._outside.complete_last(received)
                self._observe(received)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def statistics(self, loggers: Sequence[Logger] = ()) -> dict[str, Any]:
        """Return the statistics of the episodes so far, at most of the last 10,000.

        Args:
            loggers: Lightning loggers that receive them, too.

        Returns:
            `<Topic>/<event>/<statistic>/<groups>` -> number or histogram.
        """
        return self._summaries.statistics(loggers)

    def drift(self, restart: bool = False) -> list[ObservationDrift]:
        """Compare the observations so far, as the policy sees them, with those of its training.

        Args:
            restart: Whether to count from now on, for the next comparison.

        Raises:
            ValueError: There is no sample of the observations of training.
        """
        return self._monitor.report(restart)

    def event_topic(self, topic: type) -> Any:
        """Return an object with the events of a topic, for the caller to fire.

        Events between two calls of `act` belong to the step between them, earlier ones to the first step.
        """
        return self._outside.events.topic(topic)

    def _require_open(self) -> None:
        if self._is_closed:
            raise RuntimeError("this AgentDeployment is closed: make a new one")

    def _observe(self, received: Received) -> Any:
        """Receive a state.

        Returns:
            The action of the simulation if the policy is not asked; `_observation` is set if it is.
        """
        self._require_open()
        outside = self._outside
        outside.set_twin(received)
        if self._is_advancing:
            raise RuntimeError("an error interrupted the episode: call reset, and begin another one")
        if self._observation is not None or self._answer is not None:
            if received.maze_state is not outside.maze_state:
                remedy = "call reset if an error came instead, else act with the same state or take a candidate"
                raise RuntimeError(f"the previous state has no decision yet: {remedy}")
            answer, self._answer = self._answer, None
            return answer
        outside.check_step(received)
        if not self.is_running:
            return None if received.terminated or received.truncated else self._begin_episode(received)
        outside.accept(received)
        self._is_advancing = True
        info = received.info or {}
        step = (received.maze_state, received.reward, received.terminated, received.truncated, info)
        return self._go_on(self._steps.resume(step))

    def _begin_episode(self, received: Received) -> None:
        """Reset the stack to the first state of an episode."""
        self._outside.accept_first(received)
        self._is_advancing = True
        index = self._n_episodes
        seed = None if self._seed is None else derive_seed(self._seed, "env", 0, index)
        self._observation, _ = self.env.reset(seed=seed)
        self._decider.begin_episode(index)
        self.is_running = True
        self._n_episodes += 1
        self._is_advancing = False

    def _next_act(self) -> tuple[ActorID, PolicyBatch]:
        """Return the actor that acts next, with its policy batch."""
        assert self._observation is not None
        actor = self.env.actor_id()
        return actor, self._decider.batch_of(actor, self._observation)

    def _begin_step(self, actor: ActorID, batch: PolicyBatch, action: Any) -> Any:
        """Begin the step of an actor."""
        self._monitor.add(actor.step_key, batch.observation)
        self._last_actor = actor
        self._observation = None
        self._is_advancing = True
        return self._go_on(self._steps.begin(action))

    def _go_on(self, part: PartResult) -> Any:
        """Handle the result of a part of a step.

        Returns:
            The next action of the simulation, if there is one.
        """
        is_complete, value = part
        self._is_advancing = False
        if not is_complete:
            return copied(value)  # wrappers may keep it, too
        observation, _, terminated, truncated, _ = value
        if terminated or truncated:
            self._end_episode()
        else:
            self._decider.end_step(self._last_actor)
            self._observation = observation
        return None

    def _end_episode(self) -> None:
        """Keep the summary of an episode that is over."""
        self.is_running = False
        self._outside.events.end_episode()
        self._summaries.add_finished()
