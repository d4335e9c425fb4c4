"""Types as users see them: mypy accepts documented programs and refuses misspelt options, editors know all names."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import maze_pl
from maze_pl import modules
from maze_pl.__main__ import main
from maze_pl.datamodules import (
    ActorDataModule,
    PopulationDataModule,
    ReplayDataModule,
    RolloutDataModule,
    TrajectoryDataModule,
)
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.modules import AlgorithmModule
from tests import documentation

ROOT = Path(__file__).parents[1]
ALGORITHMS = [modules.A2C, modules.BC, modules.DQN, modules.ES, modules.IMPALA, modules.PPO, modules.SAC, modules.TD3]
PAGES = [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if "reference" not in path.parts)]
# Libraries that come without types are named at the end.
SETTINGS = """
[mypy]
strict = True
explicit_package_bases = True

[mypy-onnxruntime.*,pandas.*]
ignore_missing_imports = True
"""

GOOD = '''
from functools import partial
from typing import Any

import maze_pl
from gymnasium import spaces
from torch import Tensor

from maze_pl.core.actor_id import ActorID
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import CoreEnv, GymMazeEnv, Wrapper
from maze_pl.envs.wrappers import LogStatsWrapper, TimeLimitWrapper
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3
from maze_pl.perception import (
    ConcatModelBuilder,
    CustomModelComposer,
    DenseBlock,
    FlattenConcatPolicyNet,
    FlattenConcatStateActionValueNet,
    FlattenConcatStateValueNet,
    ProbabilisticPolicyComposer,
    SharedStateActionCriticComposer,
    SharedStateCriticComposer,
    TemplateModelComposer,
)


class Halved(Wrapper):
    """Halves rewards."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward / 2, terminated, truncated, info

    @property
    def agent_counts_dict(self) -> dict[int, int]:
        return {0: 1}

    @property
    def observation_spaces_dict(self) -> dict[int, spaces.Dict]:
        return {0: spaces.Dict({})}


class Cautious(PPO):
    """An algorithm with an option of its own."""

    def __init__(self, *, penalty: float = 0.1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.penalty = penalty


networks = CustomModelComposer(
    ProbabilisticPolicyComposer([partial(FlattenConcatPolicyNet, hidden_units=[8])]),
    SharedStateCriticComposer([FlattenConcatStateValueNet]),
)
SharedStateActionCriticComposer([FlattenConcatStateActionValueNet])
feature = {"block_type": DenseBlock, "block_params": {"hidden_units": [32, 32]}}
builder = ConcatModelBuilder({"feature": feature, "hidden": {}}, {"observation": "feature"})
TemplateModelComposer(builder, ProbabilisticPolicyComposer())
data = RolloutDataModule(
    env=partial(GymMazeEnv, "CartPole-v1"),
    wrappers=[Halved, partial(TimeLimitWrapper, max_episode_steps=20)],
    n_envs=2,
)
learner = PPO(networks=networks, spec=data.spec, lr=1e-3, max_grad_norm=0.5, lr_schedule="linear", capture="off")
Cautious(networks=networks, penalty=0.5)
DQN(networks=networks, dueling=True, epsilon=0.1)
for algorithm in (A2C, BC, ES, IMPALA, SAC, TD3):
    algorithm(networks=networks, critic_burn_in_epochs=0)
env: TimeLimitWrapper = TimeLimitWrapper.wrap(GymMazeEnv("CartPole-v1"), max_episode_steps=20)
logged: LogStatsWrapper = LogStatsWrapper.wrap(env, logging_prefix="train")
observation, _ = logged.reset(seed=0)
action: dict[str, Any] = learner.act(observation, deterministic=False)
action, probabilities = learner.act(observation, with_probabilities=True)
block: dict[str, Tensor] = DenseBlock("a", "b", [4], hidden_units=[3])({})
maze_pl.load("outputs/first").act(observation)
maze_pl.rollout(env, episodes=3)
'''

BAD = """
import maze_pl
from maze_pl.datamodules import RolloutDataModule
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.wrappers import TimeLimitWrapper
from maze_pl.modules import A2C, BC, DQN, ES, IMPALA, PPO, SAC, TD3
from maze_pl.perception import DenseBlock, FlattenConcatPolicyNet, ProbabilisticPolicyComposer, VGGConvolutionDenseBlock

env = GymMazeEnv("CartPole-v1")
PPO(networkz=None)
A2C(lr="fast")
SAC(actor_critik=None)
DQN(double=True)
TD3(policy_delay=0.5)
IMPALA(capture="on")
BC(max_gradnorm=1.0)
ES(optimizer="adamw")
RolloutDataModule(env=lambda: env, n_env=2)
TimeLimitWrapper(env, max_episode_stepz=20)
TimeLimitWrapper.wrap(env, max_episode_stepz=20)
DenseBlock("a", "b", [4], hidden_unit=[3])
DenseBlock("a", "b", [4], hidden_units=3)
VGGConvolutionDenseBlock("a", "b", [4], hidden_channels=[3], hidden_unit=[3])
FlattenConcatPolicyNet({}, {}, hidden_units=5)
ProbabilisticPolicyComposer(FlattenConcatPolicyNet)
maze_pl.lode("x")
maze_pl.load("x").act({}, deterministc=True)
maze_pl.rollout(env, episode=3)
"""


def program_of(page: str) -> str:
    """The Python programs of a page as one, each on the lines where it stands in the page."""
    program = ""
    for block in documentation.blocks(page):
        if block.kind in ("python", "py") and not block.file:
            program += "\n" * (page.count("\n", 0, block.start) - program.count("\n")) + block.text
    return program


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors that mypy finds in each file: in the programs above, and in all that is documented."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "good.py").write_text(GOOD, encoding="utf-8")
    (folder / "bad.py").write_text(BAD, encoding="utf-8")
    (folder / "mypy.ini").write_text(SETTINGS, encoding="utf-8")
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        documentation.write_files(page, folder)
        if program := program_of(page):
            name = "_".join(path.relative_to(ROOT).with_suffix("").parts)
            (folder / f"{name}_page.py").write_text(program, encoding="utf-8")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for name, options in (("my_shop", []), ("my_workshop", ["--structured"])):
        assert main(["new", str(folder / "new" / name), *options]) == 0
        shutil.copytree(folder / "new" / name / name, folder / name)
    shutil.rmtree(folder / "new")
    if (ROOT / ".mypy_cache").is_dir():  # what is known of libraries
        shutil.copytree(ROOT / ".mypy_cache", folder / ".mypy_cache")
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.py"))
    command = [sys.executable, "-m", "mypy", "--config-file=mypy.ini", "--no-error-summary", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MYPYPATH": "."}
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode in (0, 1) and not result.stderr, result.stderr
    found: dict[str, list[str]] = {file: [] for file in files}
    for line in result.stdout.splitlines():
        if ": note: " not in line:
            found[line.partition(":")[0]].append(line)
    return found


@pytest.mark.slow
def test_programs_are_accepted_and_misspelt_options_refused(errors: dict[str, list[str]]) -> None:
    assert errors["good.py"] == []
    lines = BAD.splitlines()
    refused = {int(line.split(":")[1]) for line in errors["bad.py"]}
    assert refused == {*range(lines.index("PPO(networkz=None)") + 1, len(lines) + 1)}, errors["bad.py"]


@pytest.mark.slow
def test_documented_files_programs_examples_and_new_projects_are_accepted(errors: dict[str, list[str]]) -> None:
    examples = {str(path.relative_to(ROOT)) for path in (ROOT / "examples").rglob("*.py")}
    assert {"my_cutting/core_env.py", "README_page.py", "docs_tutorial_09_masks_page.py"} | examples <= set(errors)
    assert {"my_shop/__init__.py", "my_shop/stock.py", "my_workshop/repairs_arrays.py"} <= set(errors)
    assert not {file: found for file, found in errors.items() if found and file != "bad.py"}


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_name_all_options_that_they_have_in_common(algorithm: type[AlgorithmModule]) -> None:
    own, common = (inspect.signature(kind).parameters for kind in (algorithm, AlgorithmModule))
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in own.values())
    for name, parameter in common.items():
        assert own[name].annotation == parameter.annotation
        assert name == "lr" or own[name].default == parameter.default
    documented = inspect.getdoc(algorithm) or ""
    for name in own:
        assert f"\n    {name}: " in documented, name


@pytest.mark.parametrize("kind", [ActorDataModule, PopulationDataModule, ReplayDataModule, TrajectoryDataModule])
def test_data_modules_name_all_options_that_they_have_in_common(kind: type[EnvironmentDataModule]) -> None:
    base = RolloutDataModule if issubclass(kind, RolloutDataModule) else EnvironmentDataModule
    own, common = (inspect.signature(one).parameters for one in (kind, base))
    assert all(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in own.values())
    # ActorDataModule and ReplayDataModule call them num_actors; an actor plays alone, so that no other has its start
    assert {*common} - {*own} <= {"n_envs", "n_same_starts"}
    documented = inspect.getdoc(kind) or ""
    for name, parameter in own.items():
        assert f"\n    {name}: " in documented, name
        assert name in ("env", "n_envs") or name not in common or parameter.annotation == common[name].annotation


def test_every_public_name_of_the_package_is_listed() -> None:
    names = [name for name in dir(maze_pl) if not name.startswith("__")]
    classes = ["AgentDeployment", "RunContext", "SimpleStatsLoggingSetup", "SweepResult"]
    functions = ["compare", "events_table", "export", "load", "load_env", "read_metrics", "rollout", "sweep"]
    tables = ["tensorboard_to_dataframe", "tensorboard_to_pandas"]
    assert names == [*classes, *functions, *tables, "view"]
    assert all(getattr(maze_pl, name).__doc__ for name in names)
    namespace: dict[str, Any] = {}
    exec("from maze_pl import *", namespace)
    assert {*names} <= namespace.keys()
    with pytest.raises(AttributeError, match="module 'maze_pl' has no attribute 'lode'"):
        maze_pl.lode  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.slow
def test_help_shows_the_functions_of_the_package_and_nothing_else() -> None:
    code = "import pydoc, maze_pl; print(pydoc.plain(pydoc.render_doc(maze_pl)))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shown = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    for name in ("load", "load_env", "rollout", "tensorboard_to_pandas"):
        assert re.search(rf"^    {name}\(", shown.stdout, re.MULTILINE), name
    assert "__getattr__" not in shown.stdout and "\n    Any" not in shown.stdout
