"""Command lines as Maze's documentation writes them: what they become, and that each of them runs."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maze_pl import maze_run
from maze_pl.maze_run import main
from maze_pl.sweeps.sweep_file import parse_changes, parse_sweep, read_content, with_changes

CUTTING = "env=tutorial_cutting_2d_struct_masked wrappers=tutorial_cutting_2d model=tutorial_cutting_2d_struct_masked"
FIT_CUTTING = (
    "--data.env env/tutorial_cutting_2d_struct_masked --data.wrappers wrappers/tutorial_cutting_2d "
    "--model.networks model/tutorial_cutting_2d_struct_masked"
)
BOUNDED = (
    "--model.networks.distribution_mapper_config '[{action_space: gymnasium.spaces.Box, "
    "distribution: maze_pl.distributions.SquashedGaussianProbabilityDistribution}]'"
)
TEMPLATE = "--model.networks model/vector_obs --model.networks.critic critic/template_state"

# Each distinct line of the documentation, without `maze-run`, and the command of maze-pl. RUN is the directory of a run
# of the same kind, RECORDED a folder of recorded episodes.
TRAINING = {
    "env.name=CartPole-v0 algorithm=a2c algorithm.n_epochs=5": (
        "--config conf_train/a2c --data.env.name CartPole-v1 --trainer.max_epochs 5"
    ),
    "env=tutorial_cutting_2d_basic wrappers=tutorial_cutting_2d_basic model=tutorial_cutting_2d_basic algorithm=ppo": (
        "--config conf_train/ppo --data.env env/tutorial_cutting_2d_basic "
        "--data.wrappers wrappers/tutorial_cutting_2d_basic --model.networks model/tutorial_cutting_2d_basic"
    ),
    "env=tutorial_cutting_2d_events wrappers=tutorial_cutting_2d_events model=tutorial_cutting_2d_events "
    "algorithm=ppo": (
        "--config conf_train/ppo --data.env env/tutorial_cutting_2d_events "
        "--data.wrappers wrappers/tutorial_cutting_2d_events --model.networks model/tutorial_cutting_2d_events"
    ),
    "env=gym_env env.name=CartPole-v0": "--config conf_train/es --data.env env/gym_env --data.env.name CartPole-v1",
    "env=gym_env env.name=LunarLander-v2": (
        "--config conf_train/es --data.env env/gym_env --data.env.name LunarLander-v3"
    ),
    "env=gym_env env.name=LunarLander-v2 wrappers=vector_obs model=vector_obs": (
        "--config conf_train/es --data.env env/gym_env --data.wrappers wrappers/vector_obs "
        "--model.networks model/vector_obs --data.env.name LunarLander-v3"
    ),
    CUTTING: f"--config conf_train/es {FIT_CUTTING}",
    f"algorithm=ppo {CUTTING}": f"--config conf_train/ppo {FIT_CUTTING}",
    "env=gym_env env.name=LunarLander-v2 algorithm=ppo": (
        "--config conf_train/ppo --data.env env/gym_env --data.env.name LunarLander-v3"
    ),
    "env=gym_env env.name=LunarLander-v2 algorithm=ppo algorithm.lr=0.0001 input_dir=RUN": (
        "--config conf_train/ppo --data.env env/gym_env --data.env.name LunarLander-v3 --model.lr 0.0001 "
        "--warm-start RUN"
    ),
    "env.name=LunarLander-v2 model=vector_obs wrappers=vector_obs algorithm=bc algorithm.validation_percentage=50 "
    "runner.dataset.dir_or_file=RECORDED": (
        "--config conf_train/bc --data.wrappers wrappers/vector_obs --model.networks model/vector_obs "
        "--data.env.name LunarLander-v3 --data.validation_percentage 50 --data.dataset.input_data RECORDED"
    ),
    "env.name=LunarLander-v2 model=vector_obs critic=template_state wrappers=vector_obs algorithm=ppo "
    "runner.eval_repeats=100 runner.critic_burn_in_epochs=10 input_dir=RUN": (
        f"--config conf_train/ppo --data.wrappers wrappers/vector_obs {TEMPLATE} --data.env.name LunarLander-v3 "
        "--data.evaluators.eval.n_episodes 100 --model.critic_burn_in_epochs 10 --warm-start RUN"
    ),
    "env.name=CartPole-v0 algorithm=ppo algorithm.lr=0.0001": (
        "--config conf_train/ppo --data.env.name CartPole-v1 --model.lr 0.0001"
    ),
    "+experiment=cartpole_ppo_wrappers": "--config experiment/cartpole_ppo_wrappers",
    "env.name=CartPole-v0 algorithm=a2c model=vector_obs critic=template_state": (
        f"--config conf_train/a2c {TEMPLATE} --data.env.name CartPole-v1"
    ),
    "env.name=CartPole-v0 algorithm=ppo model=vector_obs critic=template_state": (
        f"--config conf_train/ppo {TEMPLATE} --data.env.name CartPole-v1"
    ),
    "env.name=CartPole-v0 algorithm=impala model=vector_obs critic=template_state": (
        f"--config conf_train/impala {TEMPLATE} --data.env.name CartPole-v1"
    ),
    "env.name=Pendulum-v0 algorithm=sac model=vector_obs critic=template_state_action": (
        "--config conf_train/sac --model.networks model/vector_obs "
        f"--model.networks.critic critic/template_state_action {BOUNDED} --data.env.name Pendulum-v1"
    ),
    "env.name=LunarLander-v2 algorithm=sacfd model=flatten_concat critic=flatten_concat_state_action "
    "runner.initial_demonstration_trajectories.input_data=RECORDED": (
        "--config conf_train/sacfd --model.networks model/flatten_concat "
        f"--model.networks.critic critic/flatten_concat_state_action {BOUNDED} --data.env.name LunarLander-v3 "
        "--data.demonstrations.input_data RECORDED"
    ),
    "env.name=CartPole-v0 algorithm=es model=vector_obs": (
        "--config conf_train/es --model.networks model/vector_obs --data.env.name CartPole-v1"
    ),
    "env.name=CartPole-v1 algorithm=a2c model=vector_obs critic=template_state input_dir=RUN": (
        f"--config conf_train/a2c {TEMPLATE} --data.env.name CartPole-v1 --warm-start RUN"
    ),
    "env._target_=my_project.env_factory.make_env": (
        "--config conf_train/es --data.env "
        "'{class_path: my_project.env_factory.make_env, init_args: {name: CartPole-v1}}'"
    ),
    "env=tutorial_cutting_2d_struct wrappers=tutorial_cutting_2d model=tutorial_cutting_2d_struct algorithm=ppo": (
        "--config conf_train/ppo --data.env env/tutorial_cutting_2d_struct "
        "--data.wrappers wrappers/tutorial_cutting_2d --model.networks model/tutorial_cutting_2d_struct"
    ),
}
ROLLOUTS = {
    "env=gym_env env.name=CartPole-v0": "--env env/gym_env --policy policy/random_policy --env.name CartPole-v1",
    "env=gym_env env.name=CartPole-v0 runner=sequential runner.n_episodes=1 runner.render=true": (
        "--env env/gym_env --policy policy/random_policy --runner runner/sequential --env.name CartPole-v1 "
        "--n_episodes 1 --render true --env.dict_kwargs.render_mode rgb_array"
    ),
    "env=gym_env env.name=CartPole-v0 runner=sequential": (
        "--env env/gym_env --policy policy/random_policy --runner runner/sequential --env.name CartPole-v1"
    ),
    "env=gym_env env.name=CartPole-v0 runner.n_processes=3 runner.n_episodes=100 runner.max_episode_steps=10": (
        "--env env/gym_env --policy policy/random_policy --env.name CartPole-v1 --runner.n_workers 3 "
        "--n_episodes 100 --max_steps 10"
    ),
    "env.name=CartPole-v0 policy=torch_policy input_dir=RUN": "RUN --env.name CartPole-v1",
    "env.name=CartPole-v0 policy=torch_policy input_dir=RUN runner=sequential runner.render=true": (
        "RUN --runner runner/sequential --env.name CartPole-v1 --render true"
    ),
    f"policy=torch_policy {CUTTING} input_dir=RUN": (
        "RUN --env env/tutorial_cutting_2d_struct_masked --wrappers wrappers/tutorial_cutting_2d"
    ),
    "env=tutorial_cutting_2d_flat policy=tutorial_cutting_2d_greedy_policy": (
        "--env env/tutorial_cutting_2d_flat --policy policy/tutorial_cutting_2d_greedy_policy"
    ),
    "env.name=LunarLander-v2 policy=lunar_lander_heuristics runner=sequential runner.render=true runner.n_episodes=3": (
        "--env env/gym_env --policy policy/lunar_lander_heuristics --runner runner/sequential "
        "--env.name LunarLander-v3 --render true --n_episodes 3 --env.dict_kwargs.render_mode rgb_array"
    ),
    "env.name=LunarLander-v2 policy=lunar_lander_heuristics runner.n_episodes=3": (
        "--env env/gym_env --policy policy/lunar_lander_heuristics --env.name LunarLander-v3 --n_episodes 3"
    ),
    "env.name=LunarLander-v2 policy=lunar_lander_heuristics runner.n_episodes=1000": (
        "--env env/gym_env --policy policy/lunar_lander_heuristics --env.name LunarLander-v3 --n_episodes 1000"
    ),
    "env.name=LunarLander-v2 model=vector_obs wrappers=vector_obs policy=torch_policy input_dir=RUN": (
        "RUN --wrappers wrappers/vector_obs --env.name LunarLander-v3"
    ),
    "-cn conf_rollout env.name=CartPole-v1 policy=random_policy": (
        "--env env/gym_env --policy policy/random_policy --env.name CartPole-v1"
    ),
    "-cn conf_rollout env.name=CartPole-v1 policy=random_policy runner=sequential runner.render=true": (
        "--env env/gym_env --policy policy/random_policy --runner runner/sequential --env.name CartPole-v1 "
        "--render true --env.dict_kwargs.render_mode rgb_array"
    ),
    "-cn conf_rollout env.name=CartPole-v1 model=vector_obs policy=torch_policy input_dir=RUN": (
        "RUN --env.name CartPole-v1"
    ),
    "runner=sequential": "--env env/gym_env --policy policy/random_policy --runner runner/sequential",
    "runner=parallel": "--env env/gym_env --policy policy/random_policy --runner runner/parallel",
    "runner=parallel runner.n_processes=10": (
        "--env env/gym_env --policy policy/random_policy --runner runner/parallel --runner.n_workers 10"
    ),
    "runner=sequential runner.max_episode_steps=1000": (
        "--env env/gym_env --policy policy/random_policy --runner runner/sequential --max_steps 1000"
    ),
    "hydra.run.dir=my_dir": "--env env/gym_env --policy policy/random_policy --output_dir my_dir",
}
NETWORKS = "--model.networks model/flatten_concat"
UNITS = "networks.init_args.hidden_units '[128,128]'"
RLLIB = {
    "env.name=CartPole-v0 rllib/algorithm=ppo": "--config conf_rllib/ppo --data.env.name CartPole-v1",
    "env.name=CartPole-v0 rllib/algorithm=a3c": "--config conf_rllib/appo --data.env.name CartPole-v1",
    "env.name=CartPole-v0 rllib/algorithm=a3c algorithm.config.lr=0.001 algorithm.config.rollout_fragment_length=50": (
        "--config conf_rllib/appo --data.env.name CartPole-v1 --model.config.lr 0.001 "
        "--model.config.rollout_fragment_length 50"
    ),
    "env.name=CartPole-v0 model=rllib model.fcnet_hiddens=[128,128] model.vf_share_layers=False": (
        f"--config conf_rllib/ppo {NETWORKS} --model.networks.policy.{UNITS} --model.networks.critic.{UNITS} "
        "--data.env.name CartPole-v1"
    ),
    "env.name=CartPole-v0 rllib/runner=dev": (
        "--config conf_rllib/ppo --model.config.num_env_runners 0 --data.env.name CartPole-v1"
    ),
}
MULTIRUN = "env.name=CartPole-v0 algorithm=ppo algorithm.n_epochs=5 algorithm.lr=0.0001,0.0005,0.001 --multirun"

EVALUATED = "data.evaluators={eval: {n_episodes: 1}}"
SMALL = ["algorithm.n_epochs=1", "algorithm.capture=off", EVALUATED]
ON_POLICY = ["algorithm.epoch_length=1", "algorithm.n_rollout_steps=20"]
SMALL_BY_ALGORITHM = {
    "a2c": ["runner.concurrency=1", *ON_POLICY],
    "ppo": ["runner.concurrency=1", *ON_POLICY, "algorithm.batch_size=20"],
    "impala": ["algorithm.num_actors=1", "algorithm.actors_batch_size=1", *ON_POLICY],
    "sac": ["algorithm.epoch_length=1", "algorithm.initial_buffer_size=16", "algorithm.batch_size=8"],
    "sacfd": ["algorithm.epoch_length=1", "algorithm.batch_size=8"],
    "bc": ["data.evaluators={}"],
    "es": ["algorithm.n_rollouts_per_update=2", "algorithm.max_steps=20", "runner.shared_noise_table_size=200000"],
}


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The commands that would be run."""
    found: list[list[str]] = []
    monkeypatch.setattr(maze_run, "maze_pl_main", lambda command: found.append(command) or 0)
    yield found


@pytest.fixture
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder that the documentation names, next to recorded episodes of LunarLander."""
    folder = tmp_path_factory.getbasetemp() / "recorded"
    if not folder.exists():
        words = "env.name=LunarLander-v2 policy=lunar_lander_heuristics runner=sequential runner.n_episodes=4"
        assert main([*words.split(), f"hydra.run.dir={folder}", "runner.max_episode_steps=60"]) == 0
    return str(folder / "trajectory_data")


def first_lines(lines: list[str], n: int) -> list[Any]:
    """Lines of which all but the first few are left to the long tests."""
    return [pytest.param(line, marks=[] if lines.index(line) < n else [pytest.mark.long]) for line in lines]


def states(recorded: str) -> list[str]:
    """Keys by which the normalisation of observations is applied to recorded states, which must be trusted."""
    return [
        f"data.dataset.input_data={recorded.replace('trajectory_data', 'trajectories/states')}",
        "data.dataset.trust=true",
    ]


def words_of(line: str, **replaced: str) -> list[str]:
    """Words of a line, with names in capitals replaced."""
    words = shlex.split(line)
    for name, value in replaced.items():
        words = [word.replace(name, value) for word in words]
    return words


def small(line: str) -> list[str]:
    """Keys with which a training of a line is short."""
    found = [word.partition("=")[2] for word in line.split() if word.startswith("algorithm=")]
    algorithm = found[0] if found else ("ppo" if "experiment" in line else "es")
    return [*SMALL, *SMALL_BY_ALGORITHM[algorithm]]


# ------------------------------------------------------------------------------------------------------- translation


@pytest.mark.parametrize("line", TRAINING)
def test_training_is_translated(line: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-cn", "conf_train", *shlex.split(line)]) == 0
    assert commands == [["fit", *shlex.split(TRAINING[line])]]
    assert capsys.readouterr().out == f"maze-pl {shlex.join(commands[0])}\n"


@pytest.mark.parametrize("line", ROLLOUTS)
def test_rollouts_are_translated(line: str, commands: list[list[str]]) -> None:
    assert main(shlex.split(line)) == 0
    assert commands == [["rollout", *shlex.split(ROLLOUTS[line])]]


@pytest.mark.parametrize("line", RLLIB)
def test_lines_for_rllib_are_translated(
    line: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-cn", "conf_rllib", *shlex.split(line)]) == 0
    assert commands == [["rllib", *shlex.split(RLLIB[line])]]
    is_replaced = "RLlib trains by appo in place of a3c" in capsys.readouterr().err
    assert is_replaced == ("a3c" in line)


def test_shared_layers_and_renamed_options_of_rllib_are_translated(commands: list[list[str]]) -> None:
    words = ["model=rllib", "model.vf_share_layers=true", "model.fcnet_hiddens=[64]", "algorithm.config.num_sgd_iter=3"]
    assert main(["-cn", "conf_rllib", *words]) == 0
    assert commands[0][1:] == shlex.split(
        "--config conf_rllib/ppo --model.networks model/flatten_concat_shared_embedding "
        "--model.networks.policy.networks.init_args.hidden_units '[64]' --model.config.num_epochs 3"
    )


def test_lists_of_values_become_runs_of_rllib(commands: list[list[str]]) -> None:
    words = ["rllib/algorithm=ppo", "algorithm.config.lr=0.1,0.2", "-m", "hydra.sweep.dir=grid"]
    assert main(["-cn", "conf_rllib", *words]) == 0
    start = "rllib --config conf_rllib/ppo --model.config.lr"
    assert commands == [f"{start} {lr} --run_dir grid/run_{n}".split() for n, lr in enumerate(("0.1", "0.2"))]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("line", RLLIB)
def test_lines_for_rllib_run(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = [
        "algorithm.config.min_time_s_per_iteration=null",
        "algorithm.config.min_sample_timesteps_per_iteration=200",
    ]
    if "a3c" not in line:
        small += ["algorithm.config.train_batch_size_per_learner=200", "algorithm.config.minibatch_size=100"]
    assert main(["-cn", "conf_rllib", *shlex.split(line), *small, "algorithm.n_epochs=1", EVALUATED]) == 0
    assert len(list(tmp_path.rglob("last.ckpt"))) == 1


def test_lists_of_values_become_runs(
    commands: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["-cn", "conf_train", *MULTIRUN.split(), "hydra.sweep.dir=grid"]) == 0
    start = "fit --config conf_train/ppo --data.env.name CartPole-v1 --trainer.max_epochs 5 --model.lr"
    rates = "0.0001", "0.0005", "0.001"
    assert commands == [f"{start} {lr} --run_dir grid/run_{n}".split() for n, lr in enumerate(rates)]


def test_names_and_values_are_combined_and_lists_in_brackets_are_one_value(commands: list[list[str]]) -> None:
    words = ["algorithm=ppo,a2c", "critic.networks=[a,b]", "algorithm.lr=1,2", "-m", "hydra.sweep.dir=x"]
    assert main(["-cn", "conf_train", *words]) == 0
    values = [(command[2], command[4], command[6]) for command in commands]
    assert values == [(f"conf_train/{name}", "[a,b]", lr) for name in ("ppo", "a2c") for lr in ("1", "2")]


def test_searches_become_sweeps(commands: list[list[str]]) -> None:
    assert main(["-cn", "conf_train", *MULTIRUN.split(), "+experiment=grid_search", "hydra.launcher.n_jobs=4"]) == 0
    pendulum = "env.name=Pendulum-v0 algorithm.n_epochs=5 +experiment=nevergrad --multirun"
    assert main(["-cn", "conf_train", *pendulum.split()]) == 0
    grid = (
        "sweep experiment/grid_search --n_parallel 4 --config conf_train/ppo --options.data.env.name CartPole-v1 "
        "--options.trainer.max_epochs 5"
    )
    search = (
        "sweep experiment/hyperparameter_search --config conf_train/ppo --options.data.env.name Pendulum-v1 "
        "--options.trainer.max_epochs 5"
    )
    searched = ["--search", "{model.lr: [0.0001, 0.0005, 0.001]}"]
    assert commands == [[*grid.split(), *searched], search.split()]


def test_lists_of_values_replace_what_a_search_file_searches(commands: list[list[str]]) -> None:
    words = "env.name=CartPole-v1 algorithm=ppo algorithm.gamma=0.9,0.99 algorithm.lr=0.0001"
    jobs = ["hydra.sweeper.optim.num_workers=2", "hydra.launcher.n_jobs=3"]
    assert main(["-cn", "conf_train", *words.split(), "+experiment=grid_search", "--multirun", *jobs]) == 0
    (command,) = commands
    content, _ = read_content(command[1])
    plan = parse_sweep(with_changes(content, parse_changes(command[2:])))
    assert plan.content["search"] == {"model.gamma": [0.9, 0.99]}
    assert plan.options["model.lr"] == 0.0001
    assert plan.n_parallel == 2


def test_values_of_a_search_are_translated_one_by_one(commands: list[list[str]]) -> None:
    words = ["algorithm=ppo", "env.name=CartPole-v0,Pendulum-v0", "algorithm.device=cpu,cuda", "wandb=yes,no"]
    assert main(["-cn", "conf_train", *words, "+experiment=grid_search", "-m"]) == 0
    searched = "{data.env.name: [CartPole-v1, Pendulum-v1], trainer.accelerator: [cpu, gpu], wandb: [true, false]}"
    assert commands[0][-2:] == ["--search", searched]


def test_functions_that_make_the_environment_are_searched(commands: list[list[str]]) -> None:
    words = ["algorithm=ppo", "env._target_=a.b.B,c.d.D", "env.name=CartPole-v1", "+experiment=nevergrad", "-m"]
    assert main(["-cn", "conf_train", *words]) == 0
    (command,) = commands
    content, _ = read_content(command[1])
    plan = parse_sweep(with_changes(content, parse_changes(command[2:])))
    assert plan.content["search"] == {"data.env": [{"class_path": "a.b.B"}, {"class_path": "c.d.D"}]}
    assert plan.options["data.env.name"] == "CartPole-v1"


@pytest.mark.slow
@pytest.mark.long
def test_a_documented_search_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    keys = [word for word in MULTIRUN.split() if "n_epochs" not in word and "lr" not in word]
    words = [*keys, "algorithm.lr=0.0001,0.001", *small("algorithm=ppo"), "+experiment=grid_search"]
    assert main(["-cn", "conf_train", *words, "hydra.sweep.dir=grid"]) == 0
    assert len(list(tmp_path.rglob("last.ckpt"))) == 2


def test_keys_of_an_experiment_are_those_of_its_algorithm(commands: list[list[str]]) -> None:
    assert main(["-cn", "conf_train", "+experiment=cartpole_ppo_wrappers", "algorithm.batch_size=50"]) == 0
    assert main(["-cn", "conf_train", "algorithm=sac", "algorithm.batch_size=50"]) == 0
    assert [command[-2] for command in commands] == ["--model.batch_size", "--data.batch_size"]


def test_a_folder_of_configurations_is_searched(
    commands: list[list[str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "env").mkdir()
    (tmp_path / "env" / "car_racing.yaml").write_text("class_path: maze_pl.envs.GymMazeEnv\n", encoding="utf-8")
    (tmp_path / "my_own_conf.yaml").write_text("base: ppo_cartpole\n", encoding="utf-8")
    assert main(["-cd", str(tmp_path), "-cn", "my_own_conf", "env=car_racing", "algorithm.batch_size=50"]) == 0
    assert commands == [
        ["fit", "--config", "my_own_conf", "--data.env", "env/car_racing", "--model.batch_size", "50"],
    ]
    assert capsys.readouterr().out.startswith(f"MAZE_PL_CONFIG_PATH={tmp_path} maze-pl fit")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-cn conf_train algorithm=pppo", "there is no algorithm 'pppo'; did you mean ppo"),
        ("-cn conf_train env=gym_evn", "there is no env 'gym_evn'; did you mean gym_env"),
        ("-cn conf_tran", "there is no root configuration 'conf_tran'; did you mean conf_train"),
        (
            "-cn conf_train runner.concurency=2",
            "there is no option 'runner.concurency'; did you mean runner.concurrency",
        ),
        ("-cn conf_train enviroment.name=2", "there is no option 'enviroment.name'"),
        ("runner.n_episode=2", "there is no option 'runner.n_episode'; did you mean runner.n_episodes"),
        ("-cn conf_train algorithm.lr=1,2", "add --multirun for one run each, or write algorithm.lr=[1,2]"),
        ("-cn conf_rllib rllib/algorithm=pppo", "there is no rllib/algorithm 'pppo'; did you mean ppo"),
        ("-cn conf_rllib rllib/runner=cluster", "there is no rllib/runner 'cluster'; there are dev, local"),
        ("-cn conf_rllib algorithm=ppo", "algorithm=ppo is not a component of RLlib: use rllib/algorithm"),
        ("-cn conf_rllib model=rllib model.conv_filters=1", "model.conv_filters is not translated for model=rllib"),
        ("-cn conf_rllib enviroment.name=2", "there is no option 'enviroment.name'"),
        ("-cn conf_train +experiment=nevergrad", "+experiment=nevergrad searches: add -cn conf_train --multirun"),
        ("-cn conf_train +experiment=grid_search algorithm=ppo,a2c -m", "algorithm=ppo,a2c names several components"),
        *(
            (f"-cn conf_train {line}", "algorithm.n_epochs and trainer.max_epochs both stand for --trainer.max_epochs")
            for line in (
                "+experiment=grid_search algorithm.n_epochs=1,2 trainer.max_epochs=3,4 -m",
                "+experiment=grid_search algorithm.n_epochs=1 trainer.max_epochs=3,4 -m",
                "algorithm.n_epochs=1,2 trainer.max_epochs=3,4 -m",
                "algorithm.n_epochs=1 trainer.max_epochs=3",
            )
        ),
        ("-cn conf_train ~wrappers", "~wrappers removes a part of the configuration"),
        ("-cn conf_train --multi-run", "--multi-run is not an option of maze-run; did you mean --multirun"),
        ("-cn conf_train wrappers", "wrappers is neither GROUP=NAME nor KEY=VALUE"),
        ("-cn", "-cn needs a value"),
        ("-cd nowhere", "there is no such folder"),
        ("policy=torch_policy", "add input_dir=RUN_DIR"),
        ("env.name=CartPole-v1 model=vector_obs", "has no use in a rollout without input_dir"),
        ("algorithm=ppo", "belongs to training: add -cn conf_train"),
        ("-cn conf_train algorithm.lr=1,2 -m hydra.run.dir=x", "use hydra.sweep.dir with --multirun"),
    ],
)
def test_what_cannot_be_translated_is_named(
    line: str, message: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert not commands and not printed.out


def test_help_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("maze-run: command lines")


def test_an_option_that_does_not_exist_is_named_with_the_nearest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["-cn", "conf_train", "algorithm=ppo", "algorithm.clip_rang=0.1"]) == 2
    assert "did you mean clip_range" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# ----------------------------------------------------------------------------------------------------------- running


def in_few_processes(line: str) -> list[str]:
    """One worker where a line starts several, which takes seconds each."""
    return [] if "runner=sequential" in line else ["runner.n_processes=1"]


# The first lines of each list run with the slow tests, all others with the long ones.
@pytest.mark.slow
@pytest.mark.parametrize("line", first_lines([line for line in TRAINING if not re.search("RUN|_target_", line)], 3))
def test_training_runs_for_an_epoch(
    line: str, recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["-cn", "conf_train", *words_of(line, RECORDED=recorded), *small(line), "hydra.run.dir=here"]
    if "algorithm=bc" in line:
        words += states(recorded)
    assert main(words) == 0
    assert Path("here", "checkpoints", "last.ckpt").is_file()


@pytest.mark.slow
def test_an_environment_of_ones_own_replaces_that_of_the_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_project").mkdir()
    factory = "from maze_pl.envs import GymMazeEnv\n\n\ndef make_env(name):\n    return GymMazeEnv('Acrobot-v1')\n"
    (tmp_path / "my_project" / "env_factory.py").write_text(factory, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    words = ["-cn", "conf_train", "env._target_=my_project.env_factory.make_env", *small("algorithm=es")]
    assert main([*words, "hydra.run.dir=here"]) == 0
    text = Path("here", "config.yaml").read_text(encoding="utf-8")
    assert "class_path: my_project.env_factory.make_env" in text


@pytest.mark.slow
@pytest.mark.long
def test_runs_are_rolled_out_and_continued(
    recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["runner.n_episodes=2", "runner.max_episode_steps=10"]
    sequential = ["runner=sequential", *short]
    cartpole = "env.name=CartPole-v0 algorithm=a2c model=vector_obs critic=template_state"
    start = ["-cn", "conf_train"]
    assert main([*start, *cartpole.split(), *small(cartpole), "hydra.run.dir=a2c"]) == 0
    assert main([*start, *cartpole.split(), *small(cartpole), "hydra.run.dir=a2c_2", "input_dir=a2c"]) == 0
    cheat_sheet = "-cn conf_rollout env.name=CartPole-v1 model=vector_obs policy=torch_policy input_dir=a2c_2"
    assert main([*cheat_sheet.split(), *sequential, "hydra.run.dir=played"]) == 0
    assert main(["env.name=CartPole-v0", "policy=torch_policy", "input_dir=a2c_2", *sequential]) == 0
    assert Path("played", "episodes.csv").read_text(encoding="utf-8").count("\n") == 3

    cutting = f"algorithm=ppo {CUTTING}"
    assert main([*start, *cutting.split(), *small(cutting), "hydra.run.dir=cutting"]) == 0
    assert main(["policy=torch_policy", *CUTTING.split(), "input_dir=cutting", *sequential]) == 0

    lander = "env.name=LunarLander-v2 model=vector_obs wrappers=vector_obs"
    cloned = f"{lander} algorithm=bc algorithm.validation_percentage=50 runner.dataset.dir_or_file={recorded}"
    assert main([*start, *cloned.split(), *small("algorithm=bc"), *states(recorded), "hydra.run.dir=bc"]) == 0
    assert main([*lander.split(), "policy=torch_policy", "input_dir=bc", *sequential, "--trust"]) == 0
    tuned = f"{lander} critic=template_state algorithm=ppo runner.eval_repeats=2 runner.critic_burn_in_epochs=1"
    words = [word for word in small("algorithm=ppo") if "evaluators" not in word]
    assert main([*start, *tuned.split(), *words, "input_dir=bc", "hydra.run.dir=ppo"]) == 0
    refined = (
        "env=gym_env env.name=LunarLander-v2 algorithm=ppo algorithm.lr=0.0001 model=vector_obs wrappers=vector_obs"
    )
    assert main([*start, *refined.split(), *small("algorithm=ppo"), "input_dir=ppo", "hydra.run.dir=ppo_2"]) == 0
    assert "weights and wrapper statistics are those of ppo" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("line", first_lines([line for line in ROLLOUTS if "RUN" not in line], 2))
def test_rollouts_run(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shortened = ("runner.n_episodes", "runner.n_processes", "runner.max_episode_steps")
    words = [word for word in line.split() if not word.startswith(shortened)]
    rendered = "runner.render=true" in line
    assert main([*words, "runner.n_episodes=2", "runner.max_episode_steps=5", *in_few_processes(line)]) == 0
    assert list(tmp_path.rglob("episodes.csv"))
    assert bool(list(tmp_path.rglob("*.gif"))) == rendered


@pytest.mark.slow
@pytest.mark.long
def test_a_grid_of_values_is_trained_one_run_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    keys = [word for word in MULTIRUN.split() if "n_epochs" not in word]
    assert main(["-cn", "conf_train", *keys, *small(MULTIRUN)]) == 0
    runs = sorted(path.parent.name for path in tmp_path.glob("outputs/multirun/*/*/config.yaml"))
    assert runs == ["run_0", "run_1", "run_2"]
    shutil.rmtree(tmp_path / "outputs")
