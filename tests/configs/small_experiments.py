"""The experiments that come with maze_pl, and options with which they take a few seconds."""

from __future__ import annotations

from maze_pl.config import search_path

ELSEWHERE = "bc", "sacfd", "rllib"  # two need files, one is tested in tests/rllib
NAMES = sorted(path.stem for path in search_path.shipped_folder().glob("*.yaml") if not path.stem.startswith(ELSEWHERE))
SMALL = [
    *("--data.epoch_length", "1", "--trainer.max_epochs", "1"),
    *("--data.evaluators", '{"eval": {"n_episodes": 2}}', "--data.n_normalization_samples", "50"),
]
OWN = {  # options of each algorithm with which one batch is small
    "a2c": ["--data.n_envs", "2", "--data.n_rollout_steps", "50"],
    "ppo": ["--data.n_envs", "2", "--data.n_rollout_steps", "50", "--model.batch_size", "50"],
    "impala": ["--data.num_actors", "2", "--data.actors_batch_size", "2", "--data.n_rollout_steps", "50"],
    "sac": ["--data.num_actors", "2", "--data.n_rollout_steps", "2", "--data.initial_buffer_size", "96"],
    "es": ["--data.n_rollouts_per_update", "2", "--data.max_steps", "50", "--data.shared_noise_table_size", "100000"],
}
OWN["self"] = ["--data.n_starts", "1", "--data.n_samples", "2", "--data.batch_size", "100", "--data.max_steps", "50"]
OWN["sac"] += ["--data.batch_size", "16", "--data.num_batches_per_iter", "2"]
OWN["dqn"] = OWN["td3"] = OWN["sac"]
FURTHER = {"ppo_vehicle_routing": ["--data.n_same_starts", "2"]}  # options of single experiments
