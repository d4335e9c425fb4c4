"""An agent behind a system that it does not control: python examples/external_cartpole.py [RUN_DIR]

The system here is gymnasium's CartPole, without anything of maze_pl. It steps by itself, and asks for an action in each
state. Without a run directory, a heuristic acts.
"""

from __future__ import annotations

import sys

import gymnasium

from maze_pl import AgentDeployment
from maze_pl.envs import GymMazeEnv


def control(deployment: AgentDeployment, n_episodes: int = 3) -> dict[str, float]:
    """Let a deployed agent control the system; return the statistics."""
    external_env = gymnasium.make("CartPole-v1")
    with deployment:
        for episode in range(n_episodes):
            maze_state, info = external_env.reset(seed=episode)
            maze_action = deployment.act(maze_state, info=info)
            while maze_action is not None:  # None: the episode is over
                maze_state, reward, terminated, truncated, info = external_env.step(maze_action)
                maze_action = deployment.act(maze_state, float(reward), terminated, truncated, info)
    external_env.close()
    return deployment.statistics()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        agent = AgentDeployment.from_run(sys.argv[1])
    else:
        agent = AgentDeployment(policy="heuristic", env=GymMazeEnv("CartPole-v1"))
    print("mean return:", control(agent)["BaseEnvEvents/reward/mean"])
