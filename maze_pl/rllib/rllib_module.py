"""Base class of the modules whose networks RLlib trains."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pytorch_lightning.utilities import rank_zero_info
from torch import nn
from torch.optim import Optimizer

from maze_pl.agents import TorchActorCritic
from maze_pl.core.spec import Spec
from maze_pl.modules.algorithm import AlgorithmModule
from maze_pl.modules.network_choice import NetworksOption
from maze_pl.modules.run_module import RunModule
from maze_pl.modules.usable_heads import refuse_exploration_scale
from maze_pl.perception.models.automatic_model_composer import AutomaticModelComposer
from maze_pl.rllib.algorithm_options import AlgorithmOptions, OptionValue, configuration_of
from maze_pl.rllib.environment_source import EnvironmentSource
from maze_pl.rllib.iteration import RLlibIteration
from maze_pl.rllib.step_networks import load_weights, require_trainable
from maze_pl.rllib.versions import require_rllib
from maze_pl.system.ranks import world_size
from maze_pl.system.ray_cluster import check_address


class Publication(Optimizer):
    """An optimiser whose step takes over the weights that RLlib has trained.

    Lightning counts its steps, which are iterations of RLlib; it has no learning rate.

    Args:
        parameters: The parameters of the agent.
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        super().__init__(parameters, {})

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # returns no loss
        """Take over the weights; `closure` does it."""
        if closure is not None:
            closure()


class RLlibModule(AlgorithmModule):
    """An agent of maze_pl that an algorithm of RLlib trains. Subclasses name the algorithm.

    Batches come from an `RLlibDataModule`, which has the environments; each batch is one iteration of
    RLlib. Sub-steps are trained by themselves: a critic must be one of each sub-step.

    Args:
        config: Options of the algorithm by RLlib's names, such as `lr`, `train_batch_size_per_learner`
            and `num_env_runners`. All others have RLlib's defaults, but no workers besides this
            process (`num_env_runners` is 0).
        networks: Composer that builds policy and critic; `auto`, the default, for networks that
            fit the spaces.
        spec: Observations and actions of the agent; the command line takes it from the data module.
        actor_critic: Ready-made networks, instead of `networks`.
        address: Address of a Ray cluster, `auto` or `host:port`; null starts one on this machine.

    Raises:
        ValueError: RLlib cannot train the networks, or on these spaces.

    Attributes:
        rllib_config: Path of RLlib's class of the algorithm's configuration.
        learns_values: Whether the algorithm learns values of actions, as DQN, instead of a policy.
    """

    batch_type: ClassVar[type] = RLlibIteration
    topic = "RLlibEvents"
    statistics: ClassVar[Mapping[str, str]] = {
        "curr_entropy_coeff": "RLlib's entropy coefficient",
        "curr_kl_coeff": "RLlib's coefficient of the KL divergence, which adapts to kl_target",
        "entropy": "entropy of the policy in nats",
        "grad_norm": "L2 norm of the gradient before clipping",
        "kl": "KL divergence from the policy that acted, if use_kl_loss is set",
        "mean_is": "mean importance weight of the acts, clipped at 2",
        "qf_loss": "loss of the values of actions",
        "qf_max": "largest value of an act in a minibatch",
        "qf_mean": "mean value of the acts in a minibatch",
        "qf_min": "smallest value of an act in a minibatch",
        "td_error_mean": "mean size of the TD error",
        "total_loss": "loss that is minimised",
        "var_is": "variance of the importance weights of the acts",
        "vf_explained_var": "share of the variance of value targets that the critic predicts",
        "vf_loss": "squared error of the critic, clipped by vf_clip_param",
        "vf_loss_unclipped": "squared error of the critic",
    }
    rllib_config: ClassVar[str] = ""
    learns_values: ClassVar[bool] = False

    def __init__(
        self,
        *,
        config: dict[str, OptionValue] | None = None,
        networks: NetworksOption | None = None,
        spec: Spec | dict[str, Any] | None = None,
        actor_critic: TorchActorCritic | None = None,
        address: str | None = None,
    ) -> None:
        check_address(address)
        if actor_critic is None and (networks is None or networks == "auto"):
            networks = AutomaticModelComposer(critic="step")
        super().__init__(networks=networks, spec=spec, actor_critic=actor_critic)
        self.config = dict(config or {})
        self.address = address
        self._training: Any = None
        self._state: dict[str, Any] | None = None  # of an earlier run, to continue from

    def on_networks_ready(self) -> None:
        """Refuse networks that RLlib cannot train."""
        super().on_networks_ready()
        require_trainable(self.networks)
        if not self.learns_values:
            refuse_exploration_scale(type(self).__name__, self.policy)

    def configure_optimizers(self) -> Optimizer:
        """Return the optimiser that takes over the weights."""
        return Publication(list(self.networks.parameters()))

    def check_data_module(self, data: object) -> None:
        """Refuse data that does not fit, options that RLlib refuses, and a Ray that is not the tested one."""
        super().check_data_module(data)
        require_rllib()
        configuration_of(self._options)

    def setup(self, stage: str) -> None:
        """Refuse several ranks."""
        super().setup(stage)
        if stage == "fit" and world_size() > 1:
            remedy = "use trainer.devices=1, and num_learners or num_env_runners in model.config"
            raise ValueError(f"RLlib has its own processes, but the trainer has {world_size()}: {remedy}")

    @property
    def _options(self) -> AlgorithmOptions:
        return AlgorithmOptions(self.rllib_config, self.learns_values, self.config, self.address)

    def start_training(self, source: EnvironmentSource) -> Any:
        """Start the algorithm of RLlib, from the current weights or where an earlier run stopped.

        Args:
            source: The environments.

        Returns:
            An `RLlibTraining`.
        """
        from maze_pl.rllib.training import RLlibTraining

        state, self._state = self._state, None
        if state is not None:
            rank_zero_info("RLlib's learner continues; environments start new episodes")
        self._training = RLlibTraining(self._options, self.networks, source, state)
        return self._training

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Count environment steps and episodes; the learning rate is RLlib's."""
        RunModule.on_train_batch_start(self, batch, batch_idx)

    def training_step(self, batch: RLlibIteration, batch_idx: int) -> None:
        """Take over the weights that RLlib has trained in an iteration, and record its statistics."""
        self.optimizers().step(closure=lambda: load_weights(self.networks, batch.weights))  # type: ignore[union-attr]
        for key, statistics in batch.learner_statistics.items():
            for name, value in statistics.items():
                self.record(name, value, key)

    def rank_state(self) -> dict[str, Any]:
        """Return the state of RLlib's learner."""
        if self._training is not None:
            return {"rllib": self._training.state()}
        return {} if self._state is None else {"rllib": self._state}

    def load_rank_state(self, state: dict[str, Any]) -> None:
        """Restore the result of `rank_state`."""
        self._state = state.get("rllib")
