"""RunContext: the examples of Maze's documentation, and that it runs what the command line would run."""

from __future__ import annotations

import asyncio
import io
import logging
import shlex
import signal
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
import yaml
from torch import Tensor, nn

import maze_pl
from maze_pl import RunContext
from maze_pl.__main__ import main
from maze_pl.collect.engines import InProcessEngine
from maze_pl.config.search_path import ConfigurationError, shipped_folder
from maze_pl.datamodules import RolloutEvaluator
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import RewardScalingWrapper, TimeLimitWrapper
from maze_pl.modules import A2C
from maze_pl.perception import (
    CustomModelComposer,
    ProbabilisticPolicyComposer,
    SharedStateCriticComposer,
    TorchModelBlock,
)

SMALL: dict[str, Any] = {
    "data.n_envs": 1,
    "algorithm.n_rollout_steps": 20,
    "algorithm.epoch_length": 1,
    "algorithm.capture": "off",
    "data.evaluators": {"eval": RolloutEvaluator(n_episodes=1)},
}
PAGE = Path(__file__).parents[2] / "docs" / "run_context.md"
SMALL_TEXT = [
    *("--data.n_envs", "1", "--data.n_rollout_steps", "20", "--data.epoch_length", "1", "--model.capture", "off"),
    *("--data.evaluators", "{eval: {n_episodes: 1, deterministic: true, n_envs: 0, render: false}}"),
]
CARTPOLE = {"env.name": "CartPole-v0"}
LANDER = {"env.name": "LunarLander-v2"}
CUTTING = {
    "env": "tutorial_cutting_2d_struct_masked",
    "wrappers": "tutorial_cutting_2d",
    "model": "tutorial_cutting_2d_struct_masked",
}
TEMPLATE = {"model": "vector_obs", "critic": "template_state"}
BOUNDED = (
    "--model.networks.distribution_mapper_config '[{action_space: gymnasium.spaces.Box, "
    "distribution: maze_pl.distributions.SquashedGaussianProbabilityDistribution}]'"
)
FIT_TEMPLATE = "--model.networks model/vector_obs --model.networks.critic critic/template_state"
FIT_CUTTING = (
    "--data.env env/tutorial_cutting_2d_struct_masked --data.wrappers wrappers/tutorial_cutting_2d "
    "--model.networks model/tutorial_cutting_2d_struct_masked"
)

EXAMPLES: list[tuple[dict[str, Any], str]] = [
    ({"algorithm": "a2c", "overrides": CARTPOLE}, "--config conf_train/a2c --data.env.name CartPole-v1"),
    (
        {
            "env": "tutorial_cutting_2d_basic",
            "wrappers": "tutorial_cutting_2d_basic",
            "model": "tutorial_cutting_2d_basic",
            "algorithm": "ppo",
        },
        "--config conf_train/ppo --data.env env/tutorial_cutting_2d_basic "
        "--data.wrappers wrappers/tutorial_cutting_2d_basic --model.networks model/tutorial_cutting_2d_basic",
    ),
    (
        {
            "env": "tutorial_cutting_2d_events",
            "wrappers": "tutorial_cutting_2d_events",
            "model": "tutorial_cutting_2d_events",
            "algorithm": "ppo",
        },
        "--config conf_train/ppo --data.env env/tutorial_cutting_2d_events "
        "--data.wrappers wrappers/tutorial_cutting_2d_events --model.networks model/tutorial_cutting_2d_events",
    ),
    (
        {"env": "gym_env", "overrides": CARTPOLE},
        "--config conf_train/es --data.env env/gym_env --data.env.name CartPole-v1",
    ),
    (
        {
            "env": "gym_env",
            "overrides": {"env.name": "LunarLander-v2"},
            "wrappers": "vector_obs",
            "model": "vector_obs",
        },
        "--config conf_train/es --data.env env/gym_env --data.wrappers wrappers/vector_obs "
        "--model.networks model/vector_obs --data.env.name LunarLander-v3",
    ),
    (CUTTING, f"--config conf_train/es {FIT_CUTTING}"),
    ({**CUTTING, "algorithm": "ppo"}, f"--config conf_train/ppo {FIT_CUTTING}"),
    (
        {"env": "gym_env", "overrides": LANDER, "algorithm": "ppo"},
        "--config conf_train/ppo --data.env env/gym_env --data.env.name LunarLander-v3",
    ),
    (
        {"algorithm": "ppo", "overrides": {**CARTPOLE, "algorithm.lr": 0.0001}},
        "--config conf_train/ppo --data.env.name CartPole-v1 --model.lr 0.0001",
    ),
    ({"experiment": "cartpole_ppo_wrappers"}, "--config experiment/cartpole_ppo_wrappers"),
    (
        {"algorithm": "a2c", "overrides": CARTPOLE, **TEMPLATE},
        f"--config conf_train/a2c {FIT_TEMPLATE} --data.env.name CartPole-v1",
    ),
    (
        {"algorithm": "ppo", "overrides": CARTPOLE, **TEMPLATE},
        f"--config conf_train/ppo {FIT_TEMPLATE} --data.env.name CartPole-v1",
    ),
    (
        {"algorithm": "impala", "overrides": CARTPOLE, **TEMPLATE},
        f"--config conf_train/impala {FIT_TEMPLATE} --data.env.name CartPole-v1",
    ),
    (
        {
            "algorithm": "sac",
            "overrides": {"env.name": "Pendulum-v0"},
            "model": "vector_obs",
            "critic": "template_state_action",
        },
        "--config conf_train/sac --model.networks model/vector_obs "
        f"--model.networks.critic critic/template_state_action {BOUNDED} --data.env.name Pendulum-v1",
    ),
    (
        {
            "algorithm": "sacfd",
            "overrides": {
                "env.name": "LunarLander-v2",
                "runner.initial_demonstration_trajectories.input_data": "recorded/trajectory_data",
            },
            "model": "flatten_concat",
            "critic": "flatten_concat_state_action",
        },
        "--config conf_train/sacfd --model.networks model/flatten_concat "
        f"--model.networks.critic critic/flatten_concat_state_action {BOUNDED} --data.env.name LunarLander-v3 "
        "--data.demonstrations.input_data recorded/trajectory_data",
    ),
    (
        {"algorithm": "es", "overrides": CARTPOLE, "model": "vector_obs"},
        "--config conf_train/es --model.networks model/vector_obs --data.env.name CartPole-v1",
    ),
]


def cartpole_env_factory() -> GymMazeEnv:
    return GymMazeEnv(env=gymnasium.make("CartPole-v1"))


Shapes = Mapping[str, Sequence[int]]


class CartpolePolicyNet(nn.Module):
    """Simple linear policy net."""

    def __init__(
        self, obs_shapes: Mapping[str, Sequence[int]], action_logits_shapes: Mapping[str, Sequence[int]]
    ) -> None:
        super().__init__()
        self.net = nn.Linear(obs_shapes["observation"][0], action_logits_shapes["action"][0])

    def forward(self, x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"action": self.net(x_dict["observation"])}


class CartpoleValueNet(nn.Module):
    """Simple linear value net."""

    def __init__(self, obs_shapes: Shapes) -> None:
        super().__init__()
        self.value_net = nn.Linear(obs_shapes["observation"][0], 1)

    def forward(self, x_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"value": self.value_net(x_dict["observation"])}


def composers() -> tuple[ProbabilisticPolicyComposer, SharedStateCriticComposer]:
    """Composers with finished networks, as in the documentation's example of training in Python."""
    shapes: Any = {"observation": (4,)}
    policy_net = CartpolePolicyNet(shapes, {"action": (2,)})
    value_net = TorchModelBlock(
        in_keys="observation",
        out_keys="value",
        in_shapes=(4,),
        in_num_dims=[2],
        out_num_dims=2,
        net=CartpoleValueNet(shapes),
    )
    policy = ProbabilisticPolicyComposer(networks=[policy_net], substeps_with_separate_agent_nets=[])
    return policy, SharedStateCriticComposer(networks={0: value_net})


def weights(run_dir: str | Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(Path(run_dir, "checkpoints", "last.ckpt"), weights_only=True)["state_dict"]
    return state


def same_weights(first: str | Path, second: str | Path) -> bool:
    one, other = weights(first), weights(second)
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


# ------------------------------------------------------------------------------------------------------- translation


@pytest.mark.parametrize(("arguments", "command"), EXAMPLES)
def test_names_become_the_command_of_the_same_training(arguments: dict[str, Any], command: str) -> None:
    assert RunContext(**arguments, silent=True).command == ["fit", *shlex.split(command)]


def test_values_of_lists_become_runs() -> None:
    overrides = {**CARTPOLE, "algorithm.n_epochs": 5, "algorithm.lr": [0.0001, 0.0005, 0.001]}
    context = RunContext(algorithm="ppo", overrides=overrides, multirun=True, silent=True)
    start = "fit --config conf_train/ppo --data.env.name CartPole-v1 --trainer.max_epochs 5 --model.lr"
    assert [" ".join(run.command) for run in context.runs] == [f"{start} {lr}" for lr in (0.0001, 0.0005, 0.001)]
    with pytest.raises(RuntimeError, match=r"this context has 3 runs: use those of its attribute runs"):
        _ = context.command


def test_targets_and_arguments_become_class_paths() -> None:
    policy = {
        "_target_": "maze_pl.perception.ProbabilisticPolicyComposer",
        "networks": [
            {
                "_target_": "maze_pl.perception.FlattenConcatPolicyNet",
                "non_lin": "torch.nn.Tanh",
                "hidden_units": [256, 256],
            }
        ],
        "substeps_with_separate_agent_nets": [],
    }
    command = RunContext(overrides={"model.policy": policy}).command
    assert command[-2] == "--model.networks.policy"
    node = yaml.safe_load(command[-1])
    assert node["class_path"] == "maze_pl.perception.ProbabilisticPolicyComposer"
    assert node["init_args"]["networks"] == [
        {
            "class_path": "maze_pl.perception.FlattenConcatPolicyNet",
            "init_args": {"non_lin": "torch.nn.Tanh", "hidden_units": [256, 256]},
        }
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"algorithm": A2C(lr=0.001, gamma=0.9, entropy_coef=0.0)},
        {"overrides": {"algorithm": A2C(lr=0.001, gamma=0.9, entropy_coef=0.0)}},
        {"algorithm": partial(A2C, lr=0.001, gamma=0.9, entropy_coef=0.0)},
        {
            "algorithm": {
                "class_path": "maze_pl.modules.A2C",
                "init_args": {"lr": 0.001, "gamma": 0.9, "entropy_coef": 0.0},
            }
        },
    ],
)
def test_an_algorithm_is_a_module_a_class_a_partial_or_a_dict(arguments: dict[str, Any]) -> None:
    *start, node = RunContext(**arguments).command
    assert start == ["fit", "--config", "conf_train/a2c", "--model"]
    content = yaml.safe_load(node)
    assert content["class_path"].rpartition(".")[2] == "A2C"
    assert {"lr": 0.001, "gamma": 0.9, "entropy_coef": 0.0}.items() <= content["init_args"].items()
    assert "networks" not in content["init_args"]


@pytest.mark.slow
def test_the_assembled_configuration_is_that_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    context = RunContext(algorithm=A2C(lr=0.001), runner=InProcessEngine())
    content = context.assembled()
    assert content["model"]["init_args"]["networks"]["class_path"] == "maze_pl.perception.CustomModelComposer"
    assert content["data"]["init_args"]["engine"]["class_path"] == "maze_pl.run_context.given.engine"
    assert content["data"]["init_args"]["n_shards"] == 0
    with pytest.raises(SystemExit):
        main([*context.command, "--print_config"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["model"] == content["model"] and printed["data"] == content["data"]


@pytest.mark.parametrize("silent", [True, False])
def test_a_silent_context_drops_what_lightning_writes_to_the_console_of_its_import(silent: bool) -> None:
    console = io.StringIO()
    handler = logging.StreamHandler(console)
    logger = logging.getLogger("lightning_fabric")
    logger.addHandler(handler)
    try:
        RunContext(silent=silent).assembled()
        assert handler.stream is console
    finally:
        logger.removeHandler(handler)
    assert ("Seed set to" in console.getvalue()) == (not silent)


def test_a_composer_is_not_given_options_that_it_does_not_have() -> None:
    policy, critic = composers()
    *start, node = RunContext(algorithm="sac", model=CustomModelComposer(policy, critic)).command
    assert start == ["fit", "--config", "conf_train/sac", "--model.networks"]
    assert yaml.safe_load(node)["class_path"] == "maze_pl.run_context.given.networks"


def test_keys_of_an_algorithm_may_be_a_dict() -> None:
    command = RunContext(algorithm={"n_epochs": 3, "lr": 0.1}, configuration="ppo_cartpole").command
    assert command == ["fit", "--config", "ppo_cartpole", "--trainer.max_epochs", "3", "--model.lr", "0.1"]


def test_wrappers_are_names_dicts_classes_and_callables() -> None:
    path = "maze_pl.envs.wrappers.RewardScalingWrapper"
    mixed = [{"class_path": path, "init_args": {"scale": 0.1}}, partial(RewardScalingWrapper, scale=0.2)]
    nodes = yaml.safe_load(RunContext(wrappers=[*mixed, lambda env: env]).command[-1])
    assert [node["init_args"].get("scale") for node in nodes] == [0.1, 0.2, None]
    assert nodes[2]["init_args"] == {"name": "wrappers.2", "description": "the function <lambda>"}
    assert RunContext(wrappers={path: {"scale": 0.3}}).command[3] == "--data.wrappers"
    (node,) = yaml.safe_load(RunContext(wrappers={path: {"scale": 0.3}}).command[-1])
    assert node == {"class_path": path, "init_args": {"scale": 0.3}}


# --------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"algorithm": "pppo"}, r"there is no algorithm 'pppo'; did you mean ppo"),
        ({"env": "gym_evn"}, r"there is no env 'gym_evn'; did you mean gym_env"),
        ({"experiment": "cartpole_ppo"}, r"there is no experiment 'cartpole_ppo'; did you mean cartpole_ppo_wrappers"),
        ({"experiment": "grid_search"}, r"is a search: use `maze-pl sweep experiment/grid_search`, or maze_pl.sweep"),
        ({"overrides": {"runner.concurency": 1}}, r"did you mean runner.concurrency"),
        ({"overrides": {"algoritm.lr": 1}}, r"there is no option 'algoritm.lr'; did you mean"),
    ],
)
def test_what_does_not_exist_is_named_with_the_nearest(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        RunContext(**arguments)


def test_an_override_that_does_not_exist_is_named_with_the_nearest_and_nothing_is_written(tmp_path: Path) -> None:
    context = RunContext(algorithm="ppo", overrides={"algorithm.clip_rang": 0.1})
    with pytest.raises(ConfigurationError, match=r"'clip_rang' is not accepted.*did you mean clip_range"):
        context.train()
    assert not list(tmp_path.iterdir())


def test_a_value_that_a_constructor_refuses_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^lr=0.0 must be greater than 0$"):
        RunContext(algorithm="a2c", overrides={"algorithm.lr": 0.0}).train()


def test_an_environment_must_be_a_callable() -> None:
    with pytest.raises(TypeError, match=r"give a function that makes one, such as env=lambda"):
        RunContext(env=cartpole_env_factory())


def test_what_needs_training_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"nothing was trained yet: call train"):
        RunContext().evaluate()


# ----------------------------------------------------------------------------------------------------------- running


@pytest.mark.slow
def test_the_first_example_trains_and_acts() -> None:
    context = RunContext(algorithm="a2c", overrides={**CARTPOLE, **SMALL}, silent=True)
    context.train(n_epochs=1)
    env = GymMazeEnv("CartPole-v1")
    observation, _ = env.reset(seed=0)
    for _ in range(10):
        action = context.compute_action(observation)
        observation, _, terminated, _, _ = env.step(action)
        if terminated:
            observation, _ = env.reset()
    assert context.evaluate()["eval/return"] > 0
    assert maze_pl.rollout(context.env_factory, context.policy, episodes=1, max_steps=5)[0].summary.env_steps == 5
    assert main(["validate", str(context.run_directory)]) == 0


def test_a_run_directory_alone_that_holds_no_run_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^run_dir=typo holds no run to continue: name one, or give env"):
        RunContext(run_dir="typo")
    assert RunContext(run_dir="new", overrides={"env.name": "CartPole-v1"}).command[-1] == "new"


def test_the_agent_acts_with_the_weights_of_the_last_training_also_if_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("run").mkdir()
    Path("run", "config.yaml").write_text("{}\n", encoding="utf-8")
    context = RunContext(run_dir="run", silent=True)
    n_epochs = {"trained": 0, "fails after": 2}

    class Agent:
        def __init__(self) -> None:
            self.weights = n_epochs["trained"]

        def act(self, *_: Any, **__: Any) -> dict[str, Any]:
            return {"action": self.weights}

    def training(*_: Any, **__: Any) -> None:
        n_epochs["trained"] += 1
        if n_epochs["trained"] == n_epochs["fails after"]:
            raise RuntimeError("no connection")

    monkeypatch.setattr("maze_pl.run_context.run_context.run_command", training)
    monkeypatch.setattr("maze_pl.run_context.run_context.load", lambda *_, **__: Agent())
    assert context.compute_action({}) == {"action": 0}
    context.train()
    assert context.compute_action({}) == {"action": 1}
    with pytest.raises(RuntimeError, match="no connection"):
        context.train()
    assert context.compute_action({}) == {"action": 2}


@pytest.mark.slow
def test_actions_are_those_of_the_agent_before_and_after_a_run_is_continued() -> None:
    overrides = {**CARTPOLE, **SMALL, "algorithm.lr": 0.05, "algorithm.epoch_length": 5, "data.evaluators": {}}
    RunContext(algorithm="a2c", overrides=overrides, run_dir="run", silent=True).train(1)
    context = RunContext(run_dir="run", silent=True)
    states = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)).numpy()

    def differences(act: Any) -> int:
        observations = [{"observation": state} for state in states]
        return sum(
            int(act(observation)["action"] != context.compute_action(observation)["action"])
            for observation in observations
        )

    before = context.agent.act
    assert differences(before) == 0
    context.train(2)
    assert differences(before) > 0
    assert differences(context.agent.act) == 0


def test_arguments_of_a_rollout_replace_those_of_the_run() -> None:
    limited = partial(TimeLimitWrapper, max_episode_steps=3)
    context = RunContext(env="gym_env", wrappers=[limited], algorithm="a2c", overrides=CARTPOLE, silent=True)

    def n_steps(**options: Any) -> int:
        return context.rollout(policy="random", max_steps=5, **options)[0].summary.env_steps

    assert n_steps() == 3
    assert n_steps(wrappers=[]) == 5
    configuration = {"class_path": "maze_pl.envs.wrappers.TimeLimitWrapper", "init_args": {"max_episode_steps": 2}}
    assert n_steps(wrappers=[configuration]) == 2
    assert n_steps(env=lambda: GymMazeEnv("MountainCar-v0"), wrappers=[partial(limited, max_episode_steps=4)]) == 4


@pytest.mark.slow
def test_a_run_continues_between_python_and_the_command_line_bit_for_bit() -> None:
    arguments: dict[str, Any] = {"algorithm": "a2c", "wrappers": "vector_obs", "silent": True}
    overrides = {**CARTPOLE, **SMALL, "data.n_normalization_samples": 50}
    text = ["--data.wrappers", "wrappers/vector_obs", "--data.env.name", "CartPole-v1", *SMALL_TEXT]
    text += ["--data.n_normalization_samples", "50"]
    RunContext(**arguments, overrides=overrides, run_dir="python").train(1)
    RunContext(run_dir="python", silent=True).train(2)
    assert main(["fit", "--config", "conf_train/a2c", *text, "--run_dir", "cli", "--trainer.max_epochs", "1"]) == 0
    RunContext(run_dir="cli", silent=True).train(2)
    RunContext(**arguments, overrides=overrides, run_dir="mixed").train(1)
    assert main(["fit", "--resume", "mixed", "--trainer.max_epochs", "2"]) == 0
    assert main(["fit", "--config", "conf_train/a2c", *text, "--run_dir", "whole", "--trainer.max_epochs", "2"]) == 0
    for run in ("python", "cli", "mixed"):
        assert same_weights(run, "whole"), run
        assert Path(run, "metrics.csv").read_text().count("\n") == Path("whole", "metrics.csv").read_text().count("\n")


@pytest.mark.slow
@pytest.mark.long
def test_the_distributed_example_trains_objects_in_worker_processes_as_in_this_one() -> None:
    policy, critic = composers()
    for runner in ("dev", "local"):
        context = RunContext(
            env=cartpole_env_factory,
            algorithm=A2C(lr=0.0005, gamma=0.98, gae_lambda=1.0),
            policy=policy,
            critic=critic,
            runner=runner,
            overrides=SMALL,
            run_dir=runner,
            silent=True,
        )
        context.train(n_epochs=1)
    assert same_weights("dev", "local")
    assert context.evaluate()["eval/return"] > 0


@pytest.mark.slow
def test_networks_and_environments_are_objects_and_a_failed_call_leaves_the_context_usable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    policy, critic = composers()
    before = [parameter.clone() for parameter in policy.networks[0].parameters()]  # type: ignore[index, union-attr]
    broken = {"is": True}

    def factory() -> GymMazeEnv:
        if broken["is"]:
            raise RuntimeError("no connection to the simulation")
        return cartpole_env_factory()

    algorithm = A2C(lr=0.0005, gamma=0.98, gae_lambda=1.0)
    context = RunContext(
        env=lambda: factory(),
        algorithm=algorithm,
        policy=policy,
        critic=critic,
        runner="dev",
        overrides=SMALL,
        silent=True,
    )
    with pytest.raises(RuntimeError, match="no connection"):
        context.train(n_epochs=1)
    assert not list(Path().rglob("*.ckpt"))
    broken["is"] = False
    context.train(n_epochs=1)
    first = context.run_directory
    context.train(n_epochs=1)
    assert context.run_directory != first and same_weights(first, context.run_directory)
    after = policy.networks[0].parameters()  # type: ignore[index, union-attr]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert not capsys.readouterr().out
    assert context.rollout(1, max_steps=3)[0].summary.env_steps == 3

    # It is continued with the same objects, exactly, and refused without them.
    again: dict[str, Any] = {"env": lambda: cartpole_env_factory(), "policy": policy, "critic": critic, "silent": True}
    resumed = RunContext(run_dir=first, **again)
    assert resumed.continues
    resumed.train(n_epochs=2)
    context.train(n_epochs=2)
    assert same_weights(first, context.run_directory)
    command = ["fit", "--resume", str(first), "--trainer.max_epochs", "3"]
    assert main(command) == 2
    error = capsys.readouterr().err
    assert "this run was given policy (a ProbabilisticPolicyComposer), critic (a SharedState" in error
    assert "env (the function <lambda>) from Python" in error
    assert "use RunContext(run_dir=..., policy=..., critic=..., env=...)" in error
    with pytest.raises(ConfigurationError, match=r"was given policy .* from Python"):
        maze_pl.load(first)
    with pytest.raises(ConfigurationError, match=r"was given policy .*, env .* from Python"):
        RunContext(run_dir=first, silent=True).train(3)


@pytest.mark.slow
def test_a_run_with_other_components_takes_weights_from_an_earlier_one(capsys: pytest.CaptureFixture[str]) -> None:
    first = RunContext(env="gym_env", algorithm="ppo", overrides={**SMALL, "algorithm.batch_size": 20}, silent=True)
    first.train(1)
    overrides = {**SMALL, "algorithm.lr": 1e-30, "env.name": "CartPole-v1"}
    second = RunContext(env="gym_env", run_dir=first.run_directory, overrides=overrides, algorithm="a2c", silent=True)
    assert not second.continues
    second.train(1)
    assert second.run_directory != first.run_directory
    best = torch.load(first.run_directory / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert all(torch.equal(best[name], value) for name, value in weights(second.run_directory).items())


@pytest.mark.slow
def test_multirun_trains_each_combination_in_a_run_directory() -> None:
    overrides = {**CARTPOLE, **SMALL, "algorithm.n_epochs": 1, "algorithm.lr": [0.0001, 0.0005]}
    context = RunContext(algorithm="a2c", overrides=overrides, multirun=True, silent=True, run_dir="grid")
    context.train()
    assert [str(run.run_directory) for run in context.runs] == ["grid/run_0", "grid/run_1"]
    assert not same_weights("grid/run_0", "grid/run_1")


@pytest.mark.slow
def test_threads_and_event_loops_train_as_the_main_thread_does() -> None:
    contexts = [
        RunContext(algorithm="a2c", overrides={**SMALL, "seed_everything": seed}, run_dir=f"thread_{seed}", silent=True)
        for seed in (1, 2)
    ]
    threads = [threading.Thread(target=context.train, args=(1,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def cell() -> None:
        overrides = {**SMALL, "seed_everything": 1}
        RunContext(algorithm="a2c", overrides=overrides, run_dir="loop", silent=True).train(1)

    random_numbers = torch.get_rng_state()
    asyncio.run(cell())
    assert torch.equal(torch.get_rng_state(), random_numbers)
    text = ["--seed_everything", "1", "--trainer.max_epochs", "1", "--run_dir", "main"]
    assert main(["fit", "--config", "conf_train/a2c", *SMALL_TEXT, *text]) == 0
    assert same_weights("thread_1", "main") and same_weights("loop", "main")
    assert not same_weights("thread_1", "thread_2")


class Interrupting(GymMazeEnv):
    """CartPole during which the user interrupts the program."""

    steps = 0

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == 5:
            signal.raise_signal(signal.SIGINT)
        return super().step(action)


@pytest.mark.slow
def test_an_interrupted_run_is_continued_as_if_nothing_had_happened() -> None:
    overrides = {**SMALL, "algorithm.epoch_length": 2, "data.evaluators": {}}
    context = RunContext(env=lambda: Interrupting("CartPole-v1"), algorithm="a2c", overrides=overrides, silent=True)
    with pytest.raises(KeyboardInterrupt):
        context.train(1)
    interrupted = context.run_directory
    RunContext(run_dir=interrupted, env=lambda: GymMazeEnv("CartPole-v1"), silent=True).train(1)
    RunContext(algorithm="a2c", overrides=overrides, run_dir="whole", silent=True).train(1)
    assert same_weights(interrupted, "whole")


def option_of(name: str, group: str, option: str) -> Any:
    """An option of a shipped configuration, or of its base."""
    content = yaml.safe_load((shipped_folder() / f"{name}.yaml").read_text(encoding="utf-8"))
    if option in content.get(group, {}):
        return content[group][option]
    return option_of(content["base"], group, option)


def test_the_page_says_when_training_of_each_algorithm_stops_by_itself() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    shown: dict[str, tuple[str, str]] = {}
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        for name in cells[0].replace("`", "").split(", "):
            if len(cells) == 3:
                shown[name.strip()] = cells[1], cells[2]
    for name in ("ppo", "a2c", "impala", "sac", "dqn", "td3", "es", "bc"):
        limit = option_of(f"conf_train/{name}", "trainer", "max_epochs")
        patience = option_of(f"conf_train/{name}", "early_stopping", "patience")
        limit_text, patience_text = shown[name]
        assert limit_text == (f"{limit:,}" if limit else "none"), name
        assert patience_text.startswith(f"{patience} evaluations" if patience else "never"), name
    assert RunContext(silent=True).command[:3] == ["fit", "--config", "conf_train/es"]
