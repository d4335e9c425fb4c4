"""`maze-pl check`: what it looks at, prints and returns."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from maze_pl.__main__ import main
from maze_pl.envs import GymMazeEnv
from maze_pl.envs.arrays.cartpole_array_env import CartPoleArrayEnv
from maze_pl.system import time_limit

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

ROOT = Path(__file__).parents[2]
PENDULUM = ["check", "--env", "env/gym_env", "--env.name", "Pendulum-v1", "--n_steps", "250"]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copy(ROOT / "tests" / "bad_input" / "broken_environments.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


class Hanging(GymMazeEnv):
    """Does not return from one of its calls."""

    def __init__(self, call: str) -> None:
        super().__init__("CartPole-v1")
        self.call, self.n_calls = call, 0
        if call == "init":
            self.hang()

    def step(self, action: Any) -> Any:
        self.n_calls += 1
        if self.call == "step" and self.n_calls == 10:
            self.hang()
        return super().step(action)

    def reset(self, **options: Any) -> Any:
        if self.call == "reset" and self.n_calls > 10:
            self.hang()
        return super().reset(**options)

    def hang(self) -> None:
        while True:
            time.sleep(0.01)


def verdicts(output: str) -> dict[str, str]:
    rows = [line.split(" | ") for line in output.splitlines()[2:-1]]
    return {row[0].strip(): row[1].strip() for row in rows if row[0].strip()}


def test_a_sound_environment_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(PENDULUM) == 0
    output = capsys.readouterr().out
    assert output.startswith("Pendulum-v1: 248 acts in 2 episodes\ncheck ")
    assert output.endswith("\nerrors: 0, warnings: 0\n")
    assert verdicts(output)["determinism"] == "ok"
    assert "error" not in verdicts(output).values()
    assert max(map(len, output.splitlines())) <= 100


def test_wrappers_and_whole_configurations_are_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--wrappers", "wrappers/vector_obs", "--n_steps", "60", "--seed", "3"]
    assert main(["check", "--config", "ppo_cartpole", "--data.env.name", "Acrobot-v1", *options]) == 0
    output = capsys.readouterr().out
    assert output.startswith("Acrobot-v1: 59 acts in 1 episode")
    assert "within LogStatsWrapper, ObservationNormalizationWrapper" in " ".join(output.split()).replace(" | | ", " ")


def test_a_file_may_hold_any_options_of_the_command(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = "env: {class_path: maze_pl.envs.make_gym_maze_env, init_args: {name: CartPole-v1}}"
    (project / "checked.yaml").write_text(f"{env}\nn_steps: 40\n", encoding="utf-8")
    assert main(["check", "--config", "checked.yaml"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert main(["check", "--config", "checked.yaml", "--n_steps", "400"]) == 0
    assert capsys.readouterr().out.splitlines()[0] != first
    (project / "checked.yaml").write_text(f"{env}\nn_stepz: 40\n", encoding="utf-8")
    assert main(["check", "--config", "checked.yaml"]) == 2
    assert "did you mean n_steps?" in capsys.readouterr().err


def test_a_derived_configuration_is_reduced_to_its_environment(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    derived = "base: ppo_cartpole\nseed_everything: 3\nmodel: {init_args: {lr: 1.0e-3}}\n"
    (project / "derived.yaml").write_text(derived, encoding="utf-8")
    assert main(["check", "--config", "derived.yaml", "--n_steps", "40"]) == 0
    assert capsys.readouterr().out.startswith("CartPole-v1: ")


def test_a_run_directory_is_looked_at(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "configs" / "ppo_cartpole.yaml").read_text(encoding="utf-8")
    Path("run").mkdir()
    Path("run", "config.yaml").write_text(text, encoding="utf-8")
    assert main(["check", "run", "--n_steps", "40"]) == 0
    assert capsys.readouterr().out.startswith("CartPole-v1: ")


@pytest.mark.parametrize("call", ["step", "reset"])
def test_a_call_that_does_not_return_is_named_with_its_place(call: str, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--env", "tests.cli.test_check.Hanging", "--env.call", call, "--step_timeout", "0.1"]
    assert main(["check", *options]) == 1
    text = " ".join(capsys.readouterr().out.split()).replace(" | | ", " ")
    assert f"steps | error | {call} has not returned within 0.1 s; it is at test_check.py:" in text
    assert text.endswith("in hang errors: 1, warnings: 0")


def test_an_environment_that_cannot_be_made_in_time_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "LEAST_SECONDS_TO_MAKE", 0.1)
    assert main(["check", "--env", "tests.cli.test_check.Hanging", "--env.call", "init", "--step_timeout", "0.1"]) == 1
    message = capsys.readouterr().err
    assert "error: making the environment has not returned within 0.1 s; it is at test_check.py:" in message


class SlowToMake(CartPoleArrayEnv):
    """Array environment whose constructor takes a while in its first two calls."""

    n_made = 0

    def __init__(self) -> None:
        SlowToMake.n_made += 1
        if SlowToMake.n_made <= 2:
            time.sleep(1.0)
        super().__init__()


@pytest.mark.slow
def test_an_array_environment_is_made_once_to_look_at_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limit, "LEAST_SECONDS_TO_MAKE", 1.8)
    options = ["--step_timeout", "1.8", "--n_steps", "250"]
    assert main(["check", "--env", "tests.cli.test_check.SlowToMake", *options]) == 0, capsys.readouterr()


@pytest.mark.parametrize(
    ("name", "line", "part"),
    [
        ("Bug", "steps", "KeyError: 'position' (broken_environments.py:"),
        ("OldReset", "steps", "reset of OldReset returned an array"),
        ("NotANumber", "observations", "not finite"),
        ("NoSpace", "spaces", "NoSpace has observation_space None"),
        ("SequenceAction", "spaces", "Sequence"),
    ],
)
def test_an_environment_that_is_not_sound_ends_with_1(
    name: str, line: str, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--env", f"broken_environments.{name}", "--n_steps", "20"]) == 1
    output, error = capsys.readouterr()
    assert verdicts(output)[line] == "error"
    assert part in " ".join(output.split()).replace(" | | ", " ")
    assert error == ""


def test_masks_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["check", "--env", "broken_environments.AllForbidden", "--action_masks", '{"action": "mask"}']
    assert main(command) == 1
    assert "mask 'mask' in the observation" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["check"], ["env"]),
        (["check", "nowhere"], ["nowhere is not a run directory"]),
        (["check", "--config", "ppo_cartpol"], ["did you mean ppo_cartpole"]),
        ([*PENDULUM, "--n_stepss", "3"], ["did you mean --n_steps?"]),
        ([*PENDULUM, "--n_steps", "3"], ["n_steps=3 must be at least 10"]),
        ([*PENDULUM, "--n_steps", "x"], ["n_steps", "expected int", "x"]),
        (["check", "--env", "env/gym_env", "--env.name", "CartPol-v1"], ["Did you mean: `CartPole`"]),
        (["check", "--env", "env/gym_envv"], ["did you mean env/gym_env"]),
        (["check", "--env", "os.system"], ["os.system"]),
    ],
)
def test_a_command_that_is_wrong_ends_with_2(
    arguments: list[str], parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    output, error = capsys.readouterr()
    assert error.count("maze-pl: error: ") == 1
    assert output == ""
    for part in parts:
        assert part in error


def test_help_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "maze-pl check --config ppo_cartpole" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["check", "--help"])
    assert ended.value.code == 0
    assert "--n_steps" in capsys.readouterr().out


def test_the_command_starts_without_torch_and_lightning() -> None:
    code = "import sys, maze_pl.cli.check; print([m for m in ('torch', 'pytorch_lightning') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def as_cartpole(name: str) -> GymMazeEnv:
    """A function that makes an environment, named by a command line."""
    return GymMazeEnv(name)


def test_two_forms_of_an_environment_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    form = ["--same-as", "tests.cli.test_check.as_cartpole", "--same-as.name", "CartPole-v1"]
    options = ["--wrappers", "wrappers/vector_obs", "--n_steps", "200", "--n_envs", "2"]
    assert main(["check", "--env", "env/gym_env", *form, *options]) == 0
    assert capsys.readouterr().out.startswith("equal: 201 acts in 2 environments, ")
    assert main(["check", "--config", "ppo_cartpole", "--same-as", "env/gym_env", "--n_steps", "50"]) == 0
    assert capsys.readouterr().out.startswith("equal: 51 acts in 4 environments, ")


def test_the_first_difference_of_two_forms_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    form = ["--same-as", "env/gym_env", "--same-as.name", "Acrobot-v1"]
    assert main(["check", "--env", "env/gym_env", *form]) == 1
    output = capsys.readouterr().out
    assert output.startswith(
        "different: spec 'steps'[0] 'observation_space' 'spaces' 'observation' 'shape'[0]: 4 and 6"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--same-as", "env/gym_envs"], "there is no configuration 'env/gym_envs'"),
        (["--same-as", "env/gym_env", "--n_envs", "0"], "n_envs=0 must be at least 1"),
        (["--same-as", "nowhere.make_env"], "nowhere"),
    ],
)
def test_a_wrong_second_form_is_one_message(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--env", "env/gym_env", *options]) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert not output.out
    assert "Traceback" not in output.err


PARTIAL = partial(GymMazeEnv, "CartPole-v1")


def make_number():  # type: ignore[no-untyped-def]
    return 3


def test_a_function_that_makes_no_environment_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--env", f"{__name__}.make_number"]) == 1
    output = capsys.readouterr()
    assert "the environment factory returned '3' of type int, which is not a" in output.out
    assert not output.err


def test_an_object_that_is_neither_class_nor_function_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--env", f"{__name__}.PARTIAL"]) == 2
    message = f"env ({__name__}.PARTIAL): an object of type functools.partial is neither a class nor a function"
    assert message in capsys.readouterr().err
