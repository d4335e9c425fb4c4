"""The algorithms of the documentation compute the losses that they name, resume bit for bit, and learn their tasks."""

from __future__ import annotations

import ast
import copy
import csv
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional

from examples.algorithms.iql import IQL
from examples.algorithms.kl_ppo import KLPPO
from examples.algorithms.td3 import TD3, NoisyAction
from maze_pl.__main__ import main
from maze_pl.agents import TorchActorCritic, TorchPolicy, TorchSharedStateActionCritic, TorchSharedStateCritic
from maze_pl.core.batches import TransitionBatch
from maze_pl.core.spec import Spec, StepSpec
from maze_pl.envs import GymMazeEnv
from maze_pl.modules import PolicySamples
from maze_pl.perception import FlattenConcatStateValueNet, SharedStateCriticComposer
from tests.documentation import forget_modules
from tests.exact.comparison import differences, without_times

FOLDER = Path(__file__).parents[1] / "examples" / "algorithms"
PAGE = Path(__file__).parents[1] / "docs" / "writing_an_algorithm.md"
PROGRAMS = ["td3_pendulum", "kl_ppo_cartpole", "iql_cartpole"]
N, AGENT = 6, torch.zeros(6, dtype=torch.int64)
BOX = spaces.Box(-2.0, 4.0, (2,))

pytestmark = pytest.mark.filterwarnings("ignore:.*LeafSpec.*")


def test_programs_use_public_names_only_and_are_shown() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for path in FOLDER.glob("*.*"):
        assert f"# file: algorithms/{path.name}\n" in page
    for path in FOLDER.glob("*.py"):
        names = set[str]()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names |= {getattr(node, field) for field in ("name", "id", "attr", "arg") if hasattr(node, field)}
            names |= set((getattr(node, "module", None) or "").split("."))
        private = {name for name in names if name and name.startswith("_") and not name.startswith("__")}
        assert private <= {"_"}, path.name


# ------------------------------------------------------------------------------------------------------------- losses


class Net(nn.Module):
    """Everything side by side through one layer to one output."""

    def __init__(self, n_inputs: int, name: str, n_outputs: int) -> None:
        super().__init__()
        self.name, self.layer = name, nn.Linear(n_inputs, n_outputs)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {self.name: self.layer(torch.cat([inputs[name] for name in sorted(inputs)], dim=-1))}


def spec(action: spaces.Space[Any]) -> Spec:
    return Spec({0: StepSpec(spaces.Dict({"view": spaces.Box(-1, 1, (3,))}), spaces.Dict({"action": action}))})


def transitions(action: Tensor) -> TransitionBatch:
    observation, following = {"view": torch.randn(N, 3)}, {"view": torch.randn(N, 3)}
    discount = torch.tensor([0.9, 0.0, 0.9, 0.81, 0.9, 0.0], dtype=torch.float64)
    reward = torch.randn(N, dtype=torch.float64)
    return TransitionBatch(observation, {"action": action}, AGENT, following, reward, discount)


def moved(networks: list[nn.Module], module: nn.Module) -> list[nn.Module]:
    """Add 0.1 to all parameters of a module; return copies of the networks that it was made of, moved alike."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * parameter.requires_grad)
        copies = copy.deepcopy(networks)
        for network in copies:
            for parameter in network.parameters():
                parameter.add_(0.1)
    return copies


@pytest.fixture
def td3() -> Iterator[tuple[TD3, list[nn.Module], list[nn.Module], TransitionBatch]]:
    """TD3 with its networks, target networks (policy and both critics each), and acts."""
    torch.manual_seed(0)
    targets: list[nn.Module] = [Net(3, "action", 2), Net(5, "q_value", 1), Net(5, "q_value", 1)]
    config = [{"action_space": spaces.Box, "distribution": NoisyAction}]
    policy = TorchPolicy([copy.deepcopy(targets[0])], spec(BOX), config)
    critic = TorchSharedStateActionCritic([targets[1:]], spec(BOX))
    module = TD3(actor_critic=TorchActorCritic(policy, critic), target_noise=0.4, noise_clip=0.3)
    networks = moved(targets, module)
    yield module, networks, targets, transitions(torch.rand(N, 2) * 6 - 2)


def mean_action(network: nn.Module, view: Tensor) -> Tensor:
    return 1.0 + 3.0 * torch.tanh(network({"view": view})["action"])


def scaled(action: Tensor) -> Tensor:
    """Actions of BOX as critics read them, from -1 to 1."""
    return (action - 1.0) / 3.0


def q_value(network: nn.Module, view: Tensor, action: Tensor) -> Tensor:
    return network({"action": action, "view": view})["q_value"].squeeze(-1)


def test_td3_has_automatic_networks_and_needs_parameters_of_policy_and_critic() -> None:
    spec = Spec.of(GymMazeEnv("Pendulum-v1"))
    module = TD3(networks="auto", spec=spec)
    assert module.policy.distribution_classes(0) == {"action": NoisyAction}
    frozen = TD3(networks="auto", spec=spec, frozen=["policy.*"])
    with pytest.raises(ValueError, match=r"all parameters are frozen in \['policy'\]"):
        frozen.configure_optimizers()


def test_the_critics_of_td3_learn_the_smaller_value_of_a_noisy_target_action(td3: Any) -> None:
    module, (_, *critics), (target_policy, *target_critics), acts = td3
    torch.manual_seed(1)
    loss = module.critic_loss({0: acts})
    torch.manual_seed(1)
    noise = torch.clamp(0.4 * torch.randn(N, 2), -0.3, 0.3) * 3.0
    assert (noise.abs() > 0.89).any() and (noise.abs() < 0.89).any()
    following = acts.next_observation["view"]
    action = torch.clamp(mean_action(target_policy, following) + noise, -2.0, 4.0)
    first, second = (q_value(network, following, scaled(action)) for network in target_critics)
    target = acts.reward + acts.discount * torch.minimum(first, second)
    taken = scaled(acts.action["action"])
    values = [q_value(network, acts.observation["view"], taken) for network in critics]
    expected = sum(((value - target) ** 2).mean() for value in values)
    torch.testing.assert_close(loss, expected)


def test_the_policy_of_td3_learns_from_the_first_critic(td3: Any) -> None:
    module, (policy, first, _), _, acts = td3
    view = acts.observation["view"]
    loss = module.policy_loss({0: acts})
    torch.testing.assert_close(loss, -q_value(first, view, scaled(mean_action(policy, view))).mean())
    gradient = torch.autograd.grad(loss, list(module.policy.parameters()))
    assert all(part.abs().sum() > 0 for part in gradient)


def test_the_noise_of_td3_stays_within_bounds_and_has_the_density_that_it_says() -> None:
    distribution = NoisyAction(torch.zeros(20_000, 2), BOX)
    sample = distribution.sample(torch.Generator().manual_seed(0))
    assert torch.equal(distribution.deterministic_sample(), torch.ones(20_000, 2))
    assert sample.mean() == pytest.approx(1.0, abs=0.01) and sample.std() == pytest.approx(0.3, rel=0.02)
    normal = torch.distributions.Normal(1.0, 0.3)
    torch.testing.assert_close(distribution.log_prob(sample), normal.log_prob(sample).sum(-1))  # type: ignore[no-untyped-call]
    torch.testing.assert_close(distribution.entropy()[0], 2 * normal.entropy())  # type: ignore[no-untyped-call]
    at_border = NoisyAction(torch.full((1000, 2), 20.0), BOX).sample()
    assert at_border.max() == 4.0 and at_border.min() < 4.0
    with pytest.raises(TypeError, match="needs a Box with bounds"):
        NoisyAction.required_logits_shape(spaces.Box(-math.inf, math.inf, (2,)))


def test_the_penalty_of_kl_ppo_is_added_to_the_loss_of_actor_and_critic() -> None:
    torch.manual_seed(0)
    policy_net, value_net = Net(3, "action", 2), Net(3, "value", 1)
    discrete = spec(spaces.Discrete(2))
    networks = TorchActorCritic(TorchPolicy([policy_net], discrete), TorchSharedStateCritic([value_net], discrete))
    module = KLPPO(actor_critic=networks, initial_kl_coef=3.0, entropy_coef=0.1, value_loss_coef=0.7)
    view, action = torch.randn(N, 3), torch.tensor([0, 1, 1, 0, 1, 0])
    advantage, returns, weight = torch.randn(N), torch.randn(N), torch.full((N,), 1 / N)
    old_log_prob = torch.log(torch.tensor([0.3, 0.6, 0.5, 0.9, 0.2, 0.4]))
    samples = PolicySamples(
        {"view": view}, {"action": action}, AGENT, advantage, returns, torch.zeros(N), weight, weight, old_log_prob
    )
    loss = module.loss({0: samples})
    log_probs = policy_net({"view": view})["action"].log_softmax(-1)
    log_ratio = log_probs[torch.arange(N), action] - old_log_prob
    penalty = 3.0 * (log_ratio.exp() - 1.0 - log_ratio)
    value = value_net({"view": view})["value"].squeeze(-1)
    entropy = -(log_probs.exp() * log_probs).sum(-1)
    expected = penalty - log_ratio.exp() * advantage + 0.7 * (value - returns) ** 2 - 0.1 * entropy
    torch.testing.assert_close(loss, expected.mean())


@pytest.mark.parametrize(("divergence", "factor"), [(0.016, 2.0), (0.014, 1.0), (0.007, 1.0), (0.006, 0.5)])
def test_the_penalty_of_kl_ppo_follows_the_divergence(divergence: float, factor: float) -> None:
    discrete = spec(spaces.Discrete(2))
    critic = TorchSharedStateCritic([Net(3, "value", 1)], discrete)
    networks = TorchActorCritic(TorchPolicy([Net(3, "action", 2)], discrete), critic)
    module = KLPPO(actor_critic=networks, target_kl=0.01, initial_kl_coef=8.0)
    module.adapt(divergence)
    assert float(module.kl_coef) == 8.0 * factor


def test_the_losses_of_iql_are_those_of_the_paper() -> None:
    torch.manual_seed(0)
    discrete = spec(spaces.Discrete(2))
    policy_net, *pair = Net(3, "action", 2), Net(3, "action", 2), Net(3, "action", 2)
    policy, critic = TorchPolicy([policy_net], discrete), TorchSharedStateActionCritic([pair], discrete)
    composer = SharedStateCriticComposer([FlattenConcatStateValueNet])
    module = IQL(value=composer, actor_critic=TorchActorCritic(policy, critic), expectile=0.8, inverse_temperature=5.0)
    critics = moved(pair, module.critic)
    acts = transitions(torch.tensor([0, 1, 1, 0, 1, 0]))
    view, following = acts.observation["view"], acts.next_observation
    assert following is not None and acts.reward is not None and acts.discount is not None

    def chosen(network: nn.Module) -> Tensor:
        values: Tensor = network({"view": view})["action"][torch.arange(N), acts.action["action"]]
        return values

    value = module.value.value(0, acts.observation, AGENT)
    advantage = torch.minimum(chosen(pair[0]), chosen(pair[1])) - value
    assert (advantage > 0).any() and (advantage < 0).any()
    weight = torch.where(advantage > 0, 0.8, 0.2)
    torch.testing.assert_close(module.value_loss({0: acts}), (weight * advantage**2).mean())

    log_prob = chosen(policy_net) - policy_net({"view": view})["action"].logsumexp(-1)
    expected = -(torch.exp(5.0 * advantage).clamp(max=100.0).detach() * log_prob).mean()
    torch.testing.assert_close(module.policy_loss({0: acts}), expected)

    target = acts.reward + acts.discount * module.value.value(0, following, AGENT)
    errors = [functional.mse_loss(chosen(network).double(), target) for network in critics]
    torch.testing.assert_close(module.critic_loss({0: acts}), errors[0] + errors[1])


@pytest.mark.parametrize(("algorithm", "options"), [(TD3, {}), (IQL, {"value": SharedStateCriticComposer()})])
def test_a_critic_of_states_is_refused_where_actions_are_needed(algorithm: Any, options: dict[str, Any]) -> None:
    discrete = spec(spaces.Discrete(2))
    critic = TorchSharedStateCritic([Net(3, "value", 1)], discrete)
    networks = TorchActorCritic(TorchPolicy([Net(3, "action", 2)], discrete), critic)
    with pytest.raises(
        ValueError, match="needs a TorchStateActionCritic, not a TorchSharedStateCritic: name a composer"
    ):
        algorithm(actor_critic=networks, **options)


# ------------------------------------------------------------------------------------------------------------ training


@pytest.fixture
def train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """Train a program, as the page does, in a folder of its own; give the run directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "algorithms").symlink_to(FOLDER)

    def fit(run_dir: str, *options: str) -> Path:
        assert main(["fit", *options, "--run_dir", run_dir]) == 0
        assert "computed by autograd" not in Path(run_dir, "run.log").read_text(encoding="utf-8"), "it is traced"
        return Path(run_dir)

    yield fit
    forget_modules(tmp_path)


def record(n_random: int, n_heuristic: int) -> None:
    """Record episodes of CartPole."""
    env = ["--env", "env/gym_env", "--env.name", "CartPole-v1", "--runner", "sequential", "--max_steps", "0"]
    files = ["--trajectories", "spaces", "--event_logs", "false"]
    for policy, n in (("policy/random_policy", n_random), ("heuristic", n_heuristic)):
        folder = f"recorded/{policy.replace('/', '_')}"
        assert main(["rollout", *env, *files, "--policy", policy, "--n_episodes", str(n), "--output_dir", folder]) == 0


def metrics(run: Path) -> list[dict[str, str]]:
    """All that a run has logged but times."""
    with (run / "metrics.csv").open(encoding="utf-8") as file:
        return [without_times(row) for row in csv.DictReader(file)]


def best_return(run: Path) -> float:
    return max(float(row["eval_BaseEnvEvents/reward/mean"] or -math.inf) for row in metrics(run))


SHORT = {
    "td3_pendulum": ["--data.epoch_length", "25", "--data.initial_buffer_size", "200"],
    "kl_ppo_cartpole": ["--data.epoch_length", "2"],
    "iql_cartpole": ["--trainer.check_val_every_n_epoch", "1", "--data.batch_size", "50"],
}


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_two_epochs_equal_one_and_a_resumed_one(program: str, train: Callable[..., Path]) -> None:
    if program == "iql_cartpole":
        record(n_random=10, n_heuristic=1)
    options = ["--config", f"algorithms/{program}.yaml", "--data.evaluators.eval.n_episodes", "2", *SHORT[program]]
    whole = train("whole", *options, "--trainer.max_epochs", "2")
    parts = train("parts", *options, "--trainer.max_epochs", "1")
    first = torch.load(parts / "checkpoints/last.ckpt", weights_only=True)
    assert main(["fit", "--resume", "parts", "--trainer.max_epochs", "2", "--trust"]) == 0
    ends = [torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in (whole, parts)]
    for name in ("state_dict", "optimizer_states", "global_step", "epoch", "maze_pl"):
        expected, resumed = (without_times(end[name]) for end in ends)
        for state in (expected, resumed):
            if isinstance(state, dict):
                state.pop("config", None)  # names the run
                state.pop("provenance", None)  # names the command
        assert differences(expected, resumed) == [], name
    assert differences(first["state_dict"], ends[0]["state_dict"]) != []
    assert metrics(whole) == metrics(parts)


@pytest.mark.slow
@pytest.mark.long
def test_td3_swings_up_a_pendulum(train: Callable[..., Path]) -> None:
    assert best_return(train("run", "--config", "algorithms/td3_pendulum.yaml")) >= -250


@pytest.mark.slow
def test_kl_ppo_balances_a_pole(train: Callable[..., Path]) -> None:
    assert best_return(train("run", "--config", "algorithms/kl_ppo_cartpole.yaml")) >= 400


@pytest.mark.slow
def test_iql_is_much_better_than_the_episodes_that_it_learns_from(train: Callable[..., Path]) -> None:
    record(n_random=100, n_heuristic=5)
    returns = []
    for path in Path("recorded").rglob("episodes.csv"):
        with path.open(encoding="utf-8") as file:
            returns += [float(row["return"]) for row in csv.DictReader(file)]
    assert len(returns) == 105 and np.mean(returns) < 60
    assert best_return(train("run", "--config", "algorithms/iql_cartpole.yaml")) >= 400
