"""A2C on CartPole in plain Python, without configuration: an environment factory, two networks, and a Trainer."""

import pytorch_lightning as pl
from torch import Tensor, nn

from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateCritic
from maze_pl.datamodules import RolloutDataModule, RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import A2C


def cartpole_env_factory() -> GymMazeEnv:
    return GymMazeEnv("CartPole-v1")


class CartpoleNet(nn.Module):
    def __init__(self, n_inputs: int, key: str, n_outputs: int) -> None:
        super().__init__()
        self.key, self.net = key, nn.Sequential(nn.Linear(n_inputs, 64), nn.Tanh(), nn.Linear(64, n_outputs))

    def forward(self, observation: dict[str, Tensor]) -> dict[str, Tensor]:
        return {self.key: self.net(observation["observation"])}


def train(max_epochs: int = 5) -> float:
    evaluator = {"eval": RolloutEvaluator(n_episodes=20, deterministic=True)}
    data = RolloutDataModule(cartpole_env_factory, n_envs=8, n_rollout_steps=20, epoch_length=100, evaluators=evaluator)
    policy = TorchPolicy([CartpoleNet(4, "action", 2)], data.spec)
    critic = TorchSharedStateCritic([CartpoleNet(4, "value", 1)], data.spec)
    algorithm = A2C(actor_critic=TorchActorCritic(policy, critic), lr=2e-3, gamma=0.98)
    trainer = pl.Trainer(max_epochs=max_epochs, accelerator="cpu", logger=False, enable_checkpointing=False)
    trainer.fit(algorithm, datamodule=data)
    trainer.validate(algorithm, datamodule=data, verbose=False)
    return float(trainer.callback_metrics["eval/return"])


if __name__ == "__main__":
    pl.seed_everything(0)
    print(f"mean return of 20 evaluation episodes: {train()}")
