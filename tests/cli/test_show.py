"""`maze-pl show`: origin and contents of everything that commands write, with nothing of it executed."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from maze_pl.__main__ import main
from maze_pl.core.checkpoint_content import CHECKPOINT_KEY
from maze_pl.envs.trajectory_record import read_trajectories
from maze_pl.records.file_contents import file_contents
from maze_pl.reports.archive_values import archive_values
from maze_pl.runs.checkpoint_files import read_checkpoint
from tests.bad_input.project import SMALL, Code, tree
from tests.bundle.written_bundles import write_bundle

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run that was resumed once, and a rollout of its policy."""
    folder = tmp_path_factory.mktemp("project")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("MAZE_PL_RUN_DIR", "MAZE_PL_PROVENANCE"):
            patch.setenv(name, "")
        fit = ["fit", "--config", "ppo_cartpole", *SMALL, "--run_dir", "run", "--seed_everything", "3"]
        assert main(fit) == 0
        assert main(["fit", "--resume", "run", "--trainer.max_epochs", "2"]) == 0
        rollout = ["rollout", "run", "--n_episodes", "2", "--max_steps", "9", "--runner", "sequential"]
        assert main([*rollout, "--output_dir", "played"]) == 0
    return folder


def shown(capsys: pytest.CaptureFixture[str], path: Path) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["show", str(path), "--json"]) == 0
    facts: dict[str, Any] = json.loads(capsys.readouterr().out)
    return facts


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["show", *words]) == 2
    output, error = capsys.readouterr()
    assert output == "" and error.startswith("maze-pl: error: ") and error.count("\n") == 1
    return error


def test_a_checkpoint_tells_the_command_code_and_spaces_that_it_comes_from(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project / "run" / "checkpoints" / "last.ckpt"
    facts = shown(capsys, path)
    assert facts["kind"] == "checkpoint" and facts["env steps"] == 200 and facts["seed"] == 3
    assert facts["command"] == "maze-pl fit --resume run --trainer.max_epochs 2"
    assert f"torch {torch.__version__}" in facts["versions"] and "cpu" in facts["machine"]
    assert facts["git"] == "no repository"
    assert facts["spaces"]["sub-step 0"]["observations"] == {"observation": "box [4] float32"}
    assert facts["spaces"]["sub-step 0"]["actions"] == {"action": "discrete 2"}
    assert yaml.safe_load(facts["configuration"]) == yaml.safe_load((project / "run" / "config.yaml").read_text())
    content = read_checkpoint(path)
    assert content[CHECKPOINT_KEY]["provenance"]["command"] == facts["command"]
    weights = [(name.split("."), value.numel()) for name, value in content["state_dict"].items()]
    for part in ("policy", "critic"):
        assert facts["parameters"][part] == sum(n for name, n in weights if name[:2] == ["actor_critic", part])


def test_a_run_directory_tells_all_commands_results_and_files(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = shown(capsys, project / "run")
    assert facts["kind"] == "run directory" and facts["status"] == "ended"
    assert [text.split()[:2] for text in facts["commands"]] == [["maze-pl", "fit"]] * 2
    started, changed = facts["differences"]
    assert started.startswith("configuration: ppo_cartpole, with") and "trainer.max_epochs: 2 (instead of 1)" in changed
    assert facts["results"]["env steps"] == 200 and facts["results"]["logged epochs"] == 2
    assert set(facts["checkpoints"]) == {"best", "last"} and "metrics.csv" in facts["files"]
    assert main(["show", str(project / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "status: ended" in lines
    assert lines[-1] == f"configuration: {project / 'run' / 'config.yaml'} (--config prints it)"
    assert main(["show", str(project / "run"), "--config"]) == 0
    printed = capsys.readouterr().out.partition("\nconfiguration:\n")[2]
    assert yaml.safe_load(printed) == yaml.safe_load((project / "run" / "config.yaml").read_text())
    assert main(["show", str(project / "run" / "checkpoints" / "last.ckpt")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "configuration: in this file (--config prints it)"


def test_recorded_episodes_tell_their_command_and_spaces_and_states_are_not_unpickled(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in ("spaces", "states"):
        path = min((project / "played" / "trajectories" / kind).iterdir())
        facts = shown(capsys, path)
        assert facts["kind"].startswith("recorded episodes") and facts["episodes"] == 1
        assert facts["command"].startswith("maze-pl rollout run --n_episodes 2")
    spaces = min((project / "played" / "trajectories" / "spaces").iterdir())
    facts = shown(capsys, spaces)
    (record,) = read_trajectories(spaces)
    assert facts["acts"] == facts["env steps"] == len(record) and facts["spaces"]["sub-step 0"]["agents"] == 1
    moved = project / "alone.spaces"
    shutil.copy(spaces, moved)
    assert shown(capsys, moved)["command"] == facts["command"]
    folder = shown(capsys, project / "played")
    assert folder["kind"] == "played episodes" and folder["episodes"] == 2


def test_every_file_of_a_run_and_a_rollout_is_known(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [path for folder in ("run", "played") for path in (project / folder).rglob("*") if path.is_file()]
    assert len(paths) > 15
    for path in paths:
        if path.name != ".lock":
            assert shown(capsys, path)["kind"]


def test_a_replay_buffer_tells_its_size_and_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    storage = {"columns": {"reward": torch.zeros(7)}, "written": 9, "capacity": 7, "last": {}, "highest": 1.0}
    spec = {"steps": [{"key": 0, "n_agents": 1, "observation_space": {}, "action_space": {}}]}
    origin = {"command": "maze-pl fit --config sac", "seed": 1, "versions": {"maze_pl": "0.1.0"}, "git": None}
    state = {"storages": {0: [storage]}, "described": {"gamma": 0.9, "spec": spec}, "provenance": origin}
    torch.save(state, tmp_path / "replay-0.pt")
    facts = shown(capsys, tmp_path / "replay-0.pt")
    assert facts["kind"] == "replay buffer" and facts["command"] == "maze-pl fit --config sac"
    assert facts["transitions"] == {"sub-step 0": ["7 of at most 7, 9 written so far"]}
    assert facts["properties"] == {"gamma": 0.9}


def test_a_bundle_tells_its_origin_and_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = shown(capsys, write_bundle(tmp_path / "agent.bundle"))
    assert facts["kind"] == "bundle" and facts["format"] == 1
    assert facts["spaces"] == {
        "sub-step 0": {"observations": "place, allowed, kind", "actions": "turn", "state": "memory"}
    }
    content = bytearray((tmp_path / "agent.bundle").read_bytes())
    content[100] ^= 1
    (tmp_path / "changed.bundle").write_bytes(content)
    assert "does not match the checksum" in refusal(capsys, str(tmp_path / "changed.bundle"))


def test_nothing_in_a_checkpoint_is_executed_and_control_characters_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = {"format": 4, "version": "\x1b[2J", "env_steps": Code(), "class_path": Code()}
    torch.save({"state_dict": {}, CHECKPOINT_KEY: entry, "more": Code()}, "hostile.ckpt")
    assert main(["show", "hostile.ckpt"]) == 0
    output = capsys.readouterr().out
    assert "\x1b" not in output and "\\x1b[2J" in output
    with Path("a.states").open("wb") as file:
        file.write(pickle.dumps(Code()))
    assert "is a pickle, which runs whatever code it holds" in refusal(capsys, "a.states")
    assert not Path("pwned").exists()


def test_a_checkpoint_of_an_earlier_version_is_described_as_far_as_it_goes(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = torch.load(project / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    del content[CHECKPOINT_KEY]["provenance"]
    torch.save(content, tmp_path / "old.ckpt")
    facts = shown(capsys, tmp_path / "old.ckpt")
    assert facts["env steps"] == 200 and "command" not in facts
    assert facts["configuration"]["model"]["class_path"] == "maze_pl.modules.PPO"


def test_what_is_damaged_or_foreign_is_refused_in_one_message(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = (project / "run" / "checkpoints" / "last.ckpt").read_bytes()
    Path("cut.ckpt").write_bytes(whole[: len(whole) // 2])
    assert "it is damaged or cut short" in refusal(capsys, "cut.ckpt")
    Path("text.ckpt").write_text("hello")
    assert "it is not an archive" in refusal(capsys, "text.ckpt")
    with zipfile.ZipFile("other.ckpt", "w") as archive:
        archive.writestr("a", "b")
    assert "archive of another program" in refusal(capsys, "other.ckpt")
    spaces = min((project / "played" / "trajectories" / "spaces").iterdir()).read_bytes()
    Path("cut.spaces").write_bytes(spaces[:-10])
    assert "it is cut short: 10 bytes are missing" in refusal(capsys, "cut.spaces")
    Path("changed.spaces").write_bytes(spaces[:100] + b"?" + spaces[101:])
    assert "checksum" in refusal(capsys, "changed.spaces")
    Path("notes.txt").write_text("hello")
    assert "it is not a file of maze_pl" in refusal(capsys, "notes.txt")
    Path("empty").mkdir()
    assert "is not a run directory" in refusal(capsys, "empty")
    assert "cannot be described" in refusal(capsys, "nowhere")
    assert "unrecognized arguments: --jsn; did you mean --json?" in refusal(capsys, "empty", "--jsn")
    assert tree(tmp_path / "empty") == {}


def test_many_episodes_in_one_file_are_counted(project: Path, tmp_path: Path) -> None:
    from maze_pl.records.framing import append_record

    record = next(read_trajectories(min((project / "played" / "trajectories" / "spaces").iterdir())))
    for _ in range(3):
        append_record(tmp_path / "all.spaces", "spaces", record.to_bytes())
    contents = file_contents(tmp_path / "all.spaces")
    assert (contents.n_episodes, contents.n_acts, contents.provenance) == (3, 3 * len(record), None)
    with (tmp_path / "all.spaces").open("r+b") as file:  # a killed process leaves a part of an episode
        file.seek(0, 2)
        file.write(struct.pack("<QI4x", 160, 0) + bytes(20))
    assert file_contents(tmp_path / "all.spaces").n_episodes == 3


def test_a_checkpoint_is_described_without_its_tensors(project: Path) -> None:
    path = project / "run" / "checkpoints" / "last.ckpt"
    values = archive_values(path)
    assert values["epoch"] == 1
    assert not [name for name in sys.modules if name.startswith("pwned")]
