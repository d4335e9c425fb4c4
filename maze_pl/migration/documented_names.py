"""Names of Maze's configuration, and the options of `maze-pl` that they stand for.

`maze_pl.migration.documented` translates by these tables. A key stands for all keys below it: with
`runner.dataset` -> `data.dataset`, the key `runner.dataset.n_workers` is `data.dataset.n_workers`.
"""

from typing import Final

GROUPS: Final = ("env", "wrappers", "algorithm", "model", "critic", "policy", "runner", "experiment")
"""Groups from which a component is chosen by name."""

FIT: Final = {
    "env": "data.env",
    "wrappers": "data.wrappers",
    "algorithm": "model",
    "model": "model.networks",
    "critic": "model.networks.critic",
    "policy": "model.networks.policy",
    "algorithm.n_epochs": "trainer.max_epochs",
    "algorithm.epoch_length": "data.epoch_length",
    "algorithm.n_rollout_steps": "data.n_rollout_steps",
    "algorithm.patience": "early_stopping.patience",
    "algorithm.device": "trainer.accelerator",
    "algorithm.rollout_evaluator": "data.evaluators.eval",
    "algorithm.eval_repeats": "data.evaluators.eval.n_episodes",
    "algorithm.deterministic_eval": "data.evaluators.eval.deterministic",
    "runner.n_epochs": "trainer.max_epochs",
    "runner.concurrency": "data.n_envs",
    "runner.eval_concurrency": "data.evaluators.eval.n_envs",
    "runner.eval_repeats": "data.evaluators.eval.n_episodes",
    "runner.n_eval_workers": "data.engine.n_workers",
    "runner.n_eval_rollouts": "data.evaluators.eval.n_episodes",
    "runner.critic_burn_in_epochs": "model.critic_burn_in_epochs",
    "runner.dataset": "data.dataset",
    "runner.dataset.dir_or_file": "data.dataset.input_data",
    "runner.trajectory_data_dir": "data.dataset.input_data",
    "runner.initial_demonstration_trajectories": "data.demonstrations",
    "runner.shared_noise_table_size": "data.shared_noise_table_size",
    "runner.initial_state_dict": "warm-start",
    "input_dir": "warm-start",
    "hydra.run.dir": "run_dir",
}
"""Keys of training -> options of `maze-pl fit`."""

_OF_REPLAY: Final = (
    *("num_actors", "batch_size", "num_batches_per_iter", "rollouts_per_iteration", "replay_buffer_size"),
    *("initial_buffer_size", "initial_sampling_policy", "split_rollouts_into_transitions"),
)
_OF_POPULATIONS: Final = ("n_rollouts_per_update", "n_timesteps_per_update", "max_steps")
_OF_ACTORS: Final = ("num_actors", "actors_batch_size", "queue_out_of_sync_factor")


def _below_data(names: tuple[str, ...]) -> dict[str, str]:
    return {f"algorithm.{name}": f"data.{name}" for name in names}


FIT_BY_ALGORITHM: Final = {
    "BC": {
        "algorithm.batch_size": "data.batch_size",
        "algorithm.validation_percentage": "data.validation_percentage",
        "algorithm.n_eval_episodes": "data.evaluators.eval.n_episodes",
        "algorithm.eval_every_k_iterations": "trainer.val_check_interval",
        "algorithm.optimizer.lr": "model.lr",
    },
    "ES": {**_below_data(_OF_POPULATIONS), "algorithm.optimizer.step_size": "model.lr"},
    "IMPALA": {**_below_data(_OF_ACTORS), "runner.concurrency": "data.num_actors"},
    "SAC": {**_below_data(_OF_REPLAY), "runner.concurrency": "data.num_actors"},
    "DQN": {**_below_data(_OF_REPLAY), "runner.concurrency": "data.num_actors"},
    "TD3": {**_below_data(_OF_REPLAY), "runner.concurrency": "data.num_actors"},
}
"""Name of the algorithm's class -> keys that stand for other options than in `FIT`."""

_BOUNDED: Final = [
    {
        "action_space": "gymnasium.spaces.Box",
        "distribution": "maze_pl.distributions.SquashedGaussianProbabilityDistribution",
    }
]
WITH_OTHER_NETWORKS: Final = {"SAC": {"model.networks.distribution_mapper_config": _BOUNDED}}
"""Name of the algorithm's class -> options that it needs in networks which were not made for it."""

ROLLOUT: Final = {
    "env": "env",
    "wrappers": "wrappers",
    "policy": "policy",
    "runner.n_processes": "runner.n_workers",
    "runner.n_episodes": "n_episodes",
    "runner.max_episode_steps": "max_steps",
    "runner.render": "render",
    "runner.record_trajectory": "trajectories",
    "runner.record_event_logs": "event_logs",
    "hydra.run.dir": "output_dir",
}
"""Keys of rollouts -> options of `maze-pl rollout`."""

OWN_OPTIONS: Final = (
    *("data", "trainer", "early_stopping", "best_checkpoint", "last_checkpoint", "stop_at_return"),
    *("seed_everything", "wandb", "view", "variables"),
)
"""Options of `maze-pl fit` that may be given under their own names."""

VALUES: Final = {
    "trainer.accelerator": {"cuda": "gpu"},
    "trajectories": {"true": "both", "false": "none"},
}
"""Option -> value in Maze -> value."""

ENVIRONMENT_IDS: Final = {
    "CartPole-v0": "CartPole-v1",
    "LunarLander-v2": "LunarLander-v3",
    "LunarLanderContinuous-v2": "LunarLanderContinuous-v3",
    "Pendulum-v0": "Pendulum-v1",
}
"""Ids of environments in Maze's documentation -> ids of gymnasium."""
