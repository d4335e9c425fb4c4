"""Training with an algorithm of RLlib, in a cluster of Ray that it starts or joins."""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import torch
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.tune.registry import register_env
from torch import Tensor

from maze_pl.agents import TorchActorCritic
from maze_pl.collect.state_tensors import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.seeding import derive_seed
from maze_pl.rllib.agent_names import ModuleOfAgent, module_names
from maze_pl.rllib.algorithm_options import AlgorithmOptions, configuration_of, require_valid
from maze_pl.rllib.environment_source import EnvironmentMaker, EnvironmentSource
from maze_pl.rllib.iteration import RLlibIteration
from maze_pl.rllib.multi_agent_env import observation_space_with_id
from maze_pl.rllib.policy_module import PolicyModule
from maze_pl.rllib.q_module import QModule
from maze_pl.rllib.step_networks import to_bytes
from maze_pl.rllib.training_env import EnvReport, rllib_action_space
from maze_pl.system.ray_cluster import join_cluster

_ENVIRONMENT = "maze_pl"
_TRAINED = "trained."
_STEPS = "num_env_steps_sampled_lifetime"
_LIFETIME = f"env_runners--{_STEPS}"
_LEARNER_STATISTICS = {
    "default_optimizer_learning_rate": "learning_rate",
    "gradients_default_optimizer_global_norm": "grad_norm",
    "mean_kl_loss": "kl",
}
"""Names in RLlib -> names of the same statistics in maze_pl."""
_NOT_LOGGED = ("num_", "module_train_batch_size", "weights_seq_no", "diff_num_grad_updates")
"""First letters of statistics that say nothing about learning."""


class RLlibTraining:
    """A running algorithm of RLlib.

    Args:
        options: The algorithm.
        networks: The agent, with the weights to start from.
        source: The environments.
        state: Result of `state` to continue from; None for a new run.

    Raises:
        ValueError: RLlib refuses an option.
        ConnectionError: The Ray cluster cannot be used.
    """

    def __init__(
        self,
        options: AlgorithmOptions,
        networks: TorchActorCritic,
        source: EnvironmentSource,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        self._source = source
        self._modules = module_names(source.spec)
        self._next_episode = int(state["next_episode"]) if state else 0
        self._n_env_steps = int(state["rllib_steps"]) if state else 0
        self._is_q = options.learns_values
        self._wrapper_statistics = source.wrapper_statistics
        self._n_merges = 0
        config = self._config(options, networks)
        self._has_workers = config.num_env_runners > 0
        self._n_envs_of_worker = config.num_envs_per_env_runner
        self._undo = contextlib.ExitStack()
        try:
            join_cluster(options.address, self._undo)
            self._register_environments()
            self._undo.callback(_forget_registrations)
            self._undo.callback(_set_determinism, *_determinism())
            self._algorithm = config.build_algo()
            self._undo.callback(self._algorithm.stop)
            if state:
                self._load(state)
        except BaseException:
            self._undo.close()
            raise

    def _config(self, options: AlgorithmOptions, networks: TorchActorCritic) -> Any:
        """Make RLlib's configuration with the modules of all sub-steps."""
        spec, config = self._source.spec, configuration_of(options)
        config.environment(_ENVIRONMENT)
        config.debugging(seed=derive_seed(self._source.seed, "rllib", self._next_episode))
        common: dict[str, Any] = {"networks": to_bytes(networks)}
        if self._is_q:
            common |= {"double_q": config.double_q, "epsilon": config.epsilon}
        specs = {name: self._module_spec(key, common) for key, name in self._modules.items()}
        if spec.is_flat:
            config.rl_module(rl_module_spec=next(iter(specs.values())))
        else:
            config.multi_agent(policies=set(specs), policy_mapping_fn=ModuleOfAgent(spec))
            config.rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        require_valid(config)
        return config

    def _module_spec(self, key: StepKey, common: Mapping[str, Any]) -> RLModuleSpec:
        """Describe the module of a sub-step."""
        step = self._source.spec.steps[key]
        return RLModuleSpec(
            module_class=QModule if self._is_q else PolicyModule,
            observation_space=observation_space_with_id(step.observation_space, step.n_agents),
            action_space=rllib_action_space(step.action_space),
            model_config={**common, "step_key": key},
        )

    # ------------------------------------------------------------------------------------------------ training

    def iterate(self, merge: Callable[[list[dict[str, Any]]], dict[str, Any]]) -> RLlibIteration:
        """Let RLlib collect and learn for one of its iterations.

        Args:
            merge: Merges the wrapper statistics of several environments; the result is given to all.
        """
        began = time.perf_counter()
        result = self._algorithm.train()
        reports = self._reports()
        self._next_episode = max([self._next_episode, *(report.next_episode for report in reports)])
        self._n_env_steps += int(result.get("env_runners", {}).get("num_env_steps_sampled", 0))
        self._share_statistics(reports, merge)
        summaries = [summary for report in reports for summary in report.summaries]
        weights, statistics = self._weights(), self._learner_statistics(result)
        return RLlibIteration(
            collected=sum(report.env_steps for report in reports),
            weights=weights,
            learner_statistics=statistics,
            epsilon=self._epsilon(),
            summaries=summaries,
            seconds=time.perf_counter() - began,
        )

    def _share_statistics(
        self, reports: list[EnvReport], merge: Callable[[list[dict[str, Any]]], dict[str, Any]]
    ) -> None:
        """Give all environments, also later ones, the merged statistics of their wrappers.

        An environment in the place of one whose worker has died may not have had the merged
        statistics of the previous iteration, to which the others have added. It gets them now, and
        what it has added is dropped.
        """
        current = [report for report in reports if report.n_merges == self._n_merges]
        states = [report.wrapper_statistics for report in current if report.wrapper_statistics]
        if states:
            self._wrapper_statistics = merge(states)
        self._n_merges += 1
        if self._wrapper_statistics:
            self._of_each_env(partial(_load_statistics, self._wrapper_statistics, self._n_merges))
        if self._has_workers:
            self._register_environments()

    def _register_environments(self) -> None:
        """Tell RLlib how to make environments that continue from here, also for new workers."""
        source = replace(self._source, wrapper_statistics=self._wrapper_statistics)
        maker = EnvironmentMaker(source, self._next_episode, self._n_envs_of_worker)
        register_env(_ENVIRONMENT, maker)

    def _of_each_env(self, function: Callable[[Any], Any]) -> list[Any]:
        """Call a function with each environment, in the worker that it lives in."""
        config = self._algorithm.config
        group = self._algorithm.env_runner_group
        of_workers = group.foreach_env_runner(
            partial(_of_each_env, function), local_env_runner=config.num_env_runners == 0
        )
        return [answer for answers in of_workers for answer in answers]

    def _reports(self) -> list[EnvReport]:
        """Return what happened in each environment since the last call."""
        return self._of_each_env(_report)

    def _weights(self) -> dict[StepKey, dict[str, Any]]:
        """Return the weights of the trained part of the networks."""
        of_modules = self._algorithm.learner_group.get_weights()
        weights: dict[StepKey, dict[str, Any]] = {}
        for key, name in self._modules.items():
            weights[key] = {
                entry.removeprefix(_TRAINED): torch.as_tensor(np.array(value))
                for entry, value in of_modules[name].items()
                if entry.startswith(_TRAINED)
            }
        return weights

    def _learner_statistics(self, result: Mapping[str, Any]) -> dict[StepKey, dict[str, float]]:
        """Return the numbers that the learner reports for each sub-step."""
        learners = result.get("learners", {})
        statistics: dict[StepKey, dict[str, float]] = {}
        for key, name in self._modules.items():
            numbers = {}
            for statistic, value in learners.get(name, {}).items():
                is_number = isinstance(value, int | float | np.number)
                is_number |= isinstance(value, Tensor) and value.numel() == 1
                if is_number and not statistic.startswith(_NOT_LOGGED):
                    numbers[_LEARNER_STATISTICS.get(statistic, statistic)] = float(value)
            statistics[key] = numbers
        return statistics

    def _epsilon(self) -> float | None:
        """Return the current probability of a random action of DQN."""
        if not self._is_q:
            return None
        from ray.rllib.utils.schedules.scheduler import Scheduler

        schedule = Scheduler(fixed_value_or_schedule=self._algorithm.config.epsilon, framework="torch")
        return float(schedule.update(self._n_env_steps))

    # ------------------------------------------------------------------------------------------------ state

    def state(self) -> dict[str, Any]:
        """Return what a later run needs to continue: weights, optimisers and coefficients of the learner."""
        learner = self._algorithm.learner_group.get_state(components=["learner"])["learner"]
        kept = {name: learner[name] for name in ("rl_module", "optimizer")}
        stats = self._algorithm.metrics.get_state()["stats"]
        return {
            "learner": to_tensors(kept),
            "kl_coefficients": self._of_first_learner(_kl_coefficients),
            "metrics": {name: value for name, value in stats.items() if name == _LIFETIME},
            "next_episode": self._next_episode,
            "rllib_steps": self._n_env_steps,
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        group = self._algorithm.learner_group
        group.set_state({"learner": from_tensors(state["learner"])})
        group.foreach_learner(partial(_load_kl_coefficients, state["kl_coefficients"]))
        group.foreach_learner(partial(_continue_schedules, self._n_env_steps))
        self._algorithm.metrics.set_state({"stats": dict(state["metrics"])})
        of_workers = self._algorithm.env_runner_group
        load = partial(_load_steps, self._n_env_steps)
        of_workers.foreach_env_runner(load, local_env_runner=True)
        of_workers.sync_weights(from_worker_or_learner_group=group, inference_only=True)

    def _of_first_learner(self, function: Callable[[Any], Any]) -> Any:
        """Call a function with one learner; all have the same state."""
        return next(iter(self._algorithm.learner_group.foreach_learner(function))).get()

    def close(self) -> None:
        """Stop the algorithm and its processes; leave the cluster."""
        self._undo.close()


def _determinism() -> tuple[bool, bool]:
    """Return the modes of torch that RLlib changes where it has a seed."""
    return torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic


def _set_determinism(algorithms: bool, cudnn: bool) -> None:
    torch.use_deterministic_algorithms(algorithms)
    torch.backends.cudnn.deterministic = cudnn


def _forget_registrations() -> None:
    """Remove what RLlib has registered in gymnasium, which another run would be warned of."""
    for name in [name for name in gymnasium.registry if name.startswith("rllib-")]:
        del gymnasium.registry[name]


def _of_each_env(function: Callable[[Any], Any], runner: Any, *_: Any, **__: Any) -> list[Any]:
    """Call a function with each environment of a worker."""
    return [function(env.unwrapped.training_env) for env in runner.env.unwrapped.envs]


def _report(env: Any) -> EnvReport:
    report: EnvReport = env.report()
    return report


def _load_statistics(wrapper_statistics: Mapping[str, Any], n_merges: int, env: Any) -> None:
    env.load_statistics(wrapper_statistics, n_merges)


def _load_steps(n_env_steps: int, runner: Any, *_: Any, **__: Any) -> None:
    """Tell a worker how many steps RLlib has taken in an earlier run; exploration depends on it."""
    runner.set_state({_STEPS: n_env_steps})


def _kl_coefficients(learner: Any, *_: Any, **__: Any) -> dict[str, float]:
    """Return the coefficients that RLlib adapts to the KL divergence, which its own state lacks."""
    coefficients = getattr(learner, "curr_kl_coeffs_per_module", {})
    return {name: float(value) for name, value in coefficients.items()}


def _load_kl_coefficients(coefficients: Mapping[str, float], learner: Any, *_: Any, **__: Any) -> None:
    for name, value in coefficients.items():
        learner.curr_kl_coeffs_per_module[name].data.fill_(value)


def _continue_schedules(n_env_steps: int, learner: Any, *_: Any, **__: Any) -> None:
    """Set learning rates and entropy coefficients to those of the options before the first update.

    Args:
        n_env_steps: RLlib's count of steps, on which schedules depend.
        learner: RLlib's learner, whose optimisers have the learning rates of the earlier run.
    """
    for optimizer, schedule in learner._optimizer_lr_schedules.items():
        learner._set_optimizer_lr(optimizer, lr=schedule.update(timestep=n_env_steps))
    coefficients = getattr(learner, "entropy_coeff_schedulers_per_module", None)  # DQN has none
    if coefficients is not None:
        for name in map(str, learner.module.keys()):
            coefficients[name].update(timestep=n_env_steps)
