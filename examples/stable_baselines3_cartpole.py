"""A2C of stable-baselines3 on CartPole, with observations that a wrapper of maze_pl normalises."""

import numpy as np
from stable_baselines3 import A2C
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor

from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import (
    NoDictSpacesWrapper,
    ObservationNormalizationWrapper,
    obtain_normalization_statistics,
)


def make_env() -> NoDictSpacesWrapper:
    env = ObservationNormalizationWrapper.wrap(
        GymMazeEnv("CartPole-v1"), default_strategy_config={"clip_range": [-5, 5], "axis": 0}
    )
    obtain_normalization_statistics(env, n_samples=1000)
    # stable-baselines3 expects one Box and one Discrete instead of Dicts of them. It knows of a single actor, so that
    # an environment with sub-steps or several agents is refused here.
    return NoDictSpacesWrapper.wrap(env)


def train(total_timesteps: int = 30_000) -> float:
    model = A2C("MlpPolicy", make_env(), seed=0, device="cpu")
    model.learn(total_timesteps)
    returns, _ = evaluate_policy(model, Monitor(make_env()), n_eval_episodes=20, return_episode_rewards=True)
    return float(np.mean(returns))


if __name__ == "__main__":
    print(f"mean return of 20 evaluation episodes: {train()}")
