"""Everything that docs/ shows works, and comes out as it stands there.

`MAZE_PL_RENEW_DOCS=1 python -m pytest tests/test_docs.py` writes the outputs into the pages.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pytorch_lightning import Trainer

from maze_pl import datamodules, modules, perception
from maze_pl.callbacks import EarlyStopping
from maze_pl.collect.engines import ProcessEngine
from maze_pl.config.search_path import known_names
from maze_pl.core.class_path import import_object
from maze_pl.datamodules.environments import EnvironmentDataModule
from maze_pl.envs import StructuredEnv, Wrapper, cutting_2d, wrappers
from maze_pl.envs.wrappers import LogStatsWrapper, ObservationNormalizationStrategy, PreProcessor, TimeLimitWrapper
from maze_pl.events.topics import BUILT_IN_TOPICS
from maze_pl.modules import AlgorithmModule
from maze_pl.perception import PerceptionBlock
from maze_pl.perception.models.composers import StateCriticComposerInterface
from tests.documentation import blocks, commands, forget_modules, matches, renew_output, run_page, write_files

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = DOCS.parent / "examples"
PAGES = {str(path.relative_to(DOCS)): path for path in sorted(DOCS.rglob("*.md"))}
PAGES = {name: path for name, path in PAGES.items() if not name.startswith("reference/")}  # generated for the site
TUTORIAL = sorted(name for name in PAGES if re.match(r"tutorial/\d", name))
RENEW = bool(os.environ.get("MAZE_PL_RENEW_DOCS"))


def pages() -> list[Any]:
    """Pages with something to run; those in which something is slow are left to the slow tests."""
    run = {name: [b for b in blocks(path.read_text(encoding="utf-8")) if b.is_run] for name, path in PAGES.items()}
    is_slow = {name: any(block.is_slow for block in found) for name, found in run.items() if found}
    return [pytest.param(name, marks=[pytest.mark.slow] if slow else []) for name, slow in is_slow.items()]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder that is the current one and from which Python imports."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.setattr(sys, "argv", ["docs"])
    yield tmp_path
    forget_modules(tmp_path)
    sys.modules.pop("page", None)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*")
@pytest.mark.parametrize("name", pages())
def test_what_a_page_shows_works(name: str, folder: Path) -> None:
    for earlier in TUTORIAL[: TUTORIAL.index(name)] if name in TUTORIAL else []:
        write_files(PAGES[earlier].read_text(encoding="utf-8"), folder)
    if "examples/" in PAGES[name].read_text(encoding="utf-8"):  # which it runs from the root of the repository
        (folder / "examples").symlink_to(EXAMPLES)
    wrong = run_page(PAGES[name], folder, renew=RENEW)
    for picture in re.findall(r"^!\[.*\]\((\S+)\)$", PAGES[name].read_text(encoding="utf-8"), re.MULTILINE):
        if RENEW and (folder / picture).exists():
            shutil.copy(folder / picture, PAGES[name].parent / picture)
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("name", PAGES)
def test_examples_stand_in_the_pages_as_in_their_folder(name: str) -> None:
    page = renewed = PAGES[name].read_text(encoding="utf-8")
    for block in reversed(blocks(page)):
        example = EXAMPLES / (block.file or "")
        if block.file and example.is_file():
            text = f"# file: {block.file}\n{example.read_text(encoding='utf-8')}"
            renewed = renewed[: block.start] + text + renewed[block.start + len(block.text) :]
    if RENEW:
        PAGES[name].write_text(renewed, encoding="utf-8")
    assert RENEW or page == renewed


def test_examples_of_environments_are_short_and_shown() -> None:
    shown = {block.file for path in PAGES.values() for block in blocks(path.read_text(encoding="utf-8"))}
    for path in EXAMPLES.glob("structured/*.py"):
        assert f"structured/{path.name}" in shown
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 80


def test_links_lead_to_files_and_headings_that_exist() -> None:
    for name, path in PAGES.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
            file, _, heading = target.partition("#")
            if file.startswith(("http:", "https:")):
                continue
            linked = (path.parent / file).resolve() if file else path
            assert linked.exists(), f"{name} links to {target}, which does not exist"
            if heading:
                titles = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]
                assert heading in anchors, f"{name} links to {target}; the headings there are {anchors}"


@pytest.mark.parametrize(
    ("page", "module", "base"),
    [
        ("environments.md", wrappers, Wrapper),
        ("preprocessing_and_normalization.md", wrappers, PreProcessor),
        ("preprocessing_and_normalization.md", wrappers, ObservationNormalizationStrategy),
        ("structured_environments.md", perception, StateCriticComposerInterface),
        ("perception_blocks.md", perception, PerceptionBlock),
    ],
)
def test_tables_list_all_that_there_is_of_a_kind(page: str, module: ModuleType, base: type) -> None:
    kinds = {
        name
        for name in vars(module)
        if inspect.isclass(kind := getattr(module, name)) and issubclass(kind, base) and not inspect.isabstract(kind)
    }
    rows = re.findall(r"^\| `(\w+)`", PAGES[page].read_text(encoding="utf-8"), re.MULTILINE)
    assert kinds - {"StateCriticComposer", base.__name__} <= set(rows)
    assert len(rows) == len(set(rows))


BLOCKS_OF = {
    "dense": ["DenseBlock", "FlattenDenseBlock"],
    "convolution": [
        "VGGConvolutionBlock",
        "StridedConvolutionBlock",
        "VGGConvolutionDenseBlock",
        "VGGConvolutionGAPBlock",
        "StridedConvolutionDenseBlock",
    ],
    "strided convolution": ["StridedConvolutionBlock", "StridedConvolutionDenseBlock"],
    "LSTM": ["LSTMBlock", "LSTMLastStepBlock"],
    "attention": ["MultiHeadAttentionBlock", "SelfAttentionSeqBlock", "SelfAttentionConvBlock"],
    "graph": ["GraphConvBlock", "GraphAttentionBlock"],
    "graph convolution": ["GraphConvBlock"],
    "graph attention": ["GraphAttentionBlock"],
    "PointNet": ["PointNetFeatureBlock"],
}


def test_blocks_have_the_options_that_their_table_lists() -> None:
    text = PAGES["perception_blocks.md"].read_text(encoding="utf-8")
    table = text.partition("## Options of layers")[2].partition("```")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if line.startswith("| ")]
    options: list[str] = []
    assert len(rows) > 15
    for first, _, kinds, _ in rows[1:]:
        options = re.findall(r"`(\w+)`", first) or options
        for group in kinds.split(", "):
            names = BLOCKS_OF[group] if group in BLOCKS_OF else [group.strip("`")]
            for name in names:
                known = inspect.signature(getattr(perception, name)).parameters
                assert set(options) <= set(known), f"{name} lacks an option of {options}"


def test_names_on_the_page_of_where_things_went_exist() -> None:
    cells = re.findall(r"^\|[^|]*\| (.*) \|$", PAGES["where_things_went.md"].read_text(encoding="utf-8"), re.MULTILINE)
    names = {name for cell in cells for name in re.findall(r"`(.+?)`", cell)}
    for name in names:
        if "." in name and re.fullmatch(r"(maze_pl|pytorch_lightning)\.[\w.]+", name):
            assert callable(import_object(name)), name
        elif re.fullmatch(r"[a-z]+/\w+", name) and not name.startswith("checkpoints/"):
            assert name in known_names()
    data = tuple(kind for kind in vars(datamodules).values() if inspect.isclass(kind))
    data += (EnvironmentDataModule,)  # has what the others pass on
    owners: dict[str, tuple[Any, ...]] = {"model": (AlgorithmModule,), "data": data, "trainer": (Trainer,)}
    owners |= {"runner": (ProcessEngine,), "early_stopping": (EarlyStopping,)}
    options = re.findall(r"--([a-z_]+)\.([a-z_]+)", " ".join(names))
    assert len(options) >= 11
    for section, option in options:
        assert any(option in inspect.signature(owner).parameters for owner in owners[section]), option


# Public names that the reference documents import, instantiate or call.
NAMES_THERE = """
    A2C A2CAlgorithmConfig A2CTrainer ACDevRunner ACLocalRunner ActionConversionInterface
    ActionMaskingBlock ActionWrapper ActorID AgentDeployment BCDevRunner BCLocalRunner BaseEnvEvents
    BasePolicyComposer BestModelSelection BetaProbabilityDistribution
    CategoricalProbabilityDistribution CollectionOfConfigType ConcatModelBuilder ConcatenationBlock
    ConfigType ConfigurationLoader CoreEnv CriticComposerInterface CustomModelComposer
    Cutting2DCoreEnvironment Cutting2DEnvironment Cutting2dKpiCalculator CuttingEvents
    DefaultModelComposer DefaultRewardAggregator DenseBlock DictActionWrapper DictObservationWrapper
    DictProbabilityDistribution DiscreteActionEvents DiscretizeActionsWrapper DistributionMapper
    DummyCartPolePolicy DummyGreedyPolicy ESDevRunner ESDistributedRollouts
    ESDummyDistributedRollouts EpisodeEventLog EventEnvMixin EventRecord EventService
    FlattenConcatPolicyNet FlattenPreProcessor GymCoreEnv GymMazeEnv GymObservationConversion
    HeuristicLunarLanderPolicy IdentityTrajectoryProcessor
    IdentityWithNextObservationTrajectoryProcessor ImitationRunner ImpalaDevRunner ImpalaLocalRunner
    InMemoryDataset InMemoryImitationDataSet InferenceBlock InventoryEvents KpiCalculator
    LSTMLastStepBlock LinearOutputBlock LogStatsWrapper MaskedStructuredCutting2DEnvironment
    MazeActionType MazeEnv MazeEnvMonitoringWrapper MazeLocalLauncher MazeSeeding MazeStateType
    MeanZeroStdOneObservationNormalizationStrategy MultiStepA2C MultiStepPPO NoDictSpacesWrapper
    ObservationConversionInterface ObservationNormalizationStrategy ObservationNormalizationWrapper
    ObservationStackWrapper ObservationVisualizationWrapper ObservationWrapper OneHotPreProcessor
    PPO ParallelRolloutRunner PerceptionBlock PreProcessingWrapper PreProcessor
    ProbabilisticPolicyComposer ProbabilityDistribution Pubsub RandomPolicy RandomResetWrapper
    RangeZeroOneObservationNormalizationStrategy RawPieceUsageRewardAggregator RenderEnvMixin
    Renderer ResizeImgPreProcessor RewardAggregatorInterface RewardClippingWrapper
    RewardScalingWrapper RewardWrapper Rgb2GrayPreProcessor RolloutEvaluator RunContext RunMode
    SACDevRunner SearchPathPlugin SequentialVectorEnv ShapeNormalizationBlock SharedNoiseTable
    SharedStateCriticComposer SimpleStatsLoggingSetup SquashedGaussianProbabilityDistribution
    StateCritic StateCriticComposer StateRecord StateTrajectoryRecord StepEventLog
    StepStateCriticComposer StructuredCutting2DEnvironment StructuredEnv StructuredEnvSpacesMixin
    StructuredPolicy SubprocVectorEnv Subscriber TemplateModelComposer TimeLimitWrapper
    TorchActorCritic TorchModelBlock TorchPolicy TorchSharedStateCritic TrainingRunner
    UnSqueezePreProcessor VGGConvolutionDenseBlock build_dummy_maze_env compute_action
    define_episode_stats define_epoch_stats define_step_stats deserialize_in_main_thread
    deterministic_eval eval_repeats generate_agent_instance_seed generate_env_instance_seed
    get_observation_and_action_dicts initial_state_dict log_base_dir log_step_statistics
    make_env_from_hydra make_module_init_normc n_eval_workers obtain_normalization_statistics
    override run_context setup_logging start_method state_dict_dump_file tensorboard_to_pandas
    trainer_class trajectory_data_dir
"""


def test_names_of_the_reference_documents_are_here_or_said_to_be_elsewhere() -> None:
    rows = re.findall(r"^\| ([^|]*) \|", PAGES["where_things_went.md"].read_text(encoding="utf-8"), re.MULTILINE)
    moved = {name for row in rows for code in re.findall(r"`(.+?)`", row) for name in re.findall(r"\w+", code)}
    source = [path.read_text(encoding="utf-8") for path in (DOCS.parent / "maze_pl").rglob("*.py")]
    here = set(re.findall(r"^ *(?:class|def) (\w+)|^(\w+)(?: =|: )", "\n".join(source), re.MULTILINE))
    known = {name for pair in here for name in pair}
    assert [name for name in NAMES_THERE.split() if name not in known | moved] == []
    assert {"seed", "reset", "step"} <= moved


def test_the_page_on_events_names_all_topics() -> None:
    cells = re.findall(
        r"^\| (`\w+Events`.*?) \|", PAGES["events_and_kpis.md"].read_text(encoding="utf-8"), re.MULTILINE
    )
    named = {name for cell in cells for name in re.findall(r"\w+", cell.partition(" (")[0])}
    of_algorithms = {module.topic for module in vars(modules).values() if hasattr(module, "topic")}
    assert named == {topic.__name__ for topic in BUILT_IN_TOPICS} | of_algorithms


def test_the_tutorial_ends_with_the_environment_that_comes_with_maze_pl(folder: Path) -> None:
    for name in TUTORIAL:
        write_files(PAGES[name].read_text(encoding="utf-8"), folder)
    instance = (50, (4, 3), [(1, 2), (1, 2), (1, 1), (2, 2), (1, 2), (1, 1)])
    for module, factory in (
        ("env", "maze_env_factory"),
        ("struct_env", "struct_env_factory"),
        ("masked_env", "masked_struct_env_factory"),
    ):
        own = getattr(importlib.import_module(f"my_cutting.{module}"), factory)(*instance)
        built_in = getattr(cutting_2d, factory)(*instance)
        assert play(own) == play(built_in)


def play(env: StructuredEnv) -> list[Any]:
    """All that an episode of random valid actions shows."""
    wrapped = LogStatsWrapper.wrap(TimeLimitWrapper.wrap(env, max_episode_steps=180))
    generator = np.random.default_rng(1)
    observation, _ = wrapped.reset(seed=0)
    seen: list[Any] = [observation]
    ended = False
    while not ended:
        key = wrapped.actor_id().step_key
        space, masks = wrapped.action_spaces_dict[key], wrapped.action_masks_dict.get(key, {})
        action = {}
        for head, choices in sorted(space.spaces.items()):
            allowed = np.flatnonzero(observation[masks[head]]) if head in masks else np.arange(choices.n)
            action[head] = int(generator.choice(allowed[allowed < 12]))
        observation, reward, terminated, truncated, info = wrapped.step(action)
        ended = terminated or truncated
        seen.append((wrapped.actor_id(), space, action, observation, reward, ended, info))
    (summary,) = wrapped.drain_episode_summaries()
    statistics = [  # topics are told apart by their modules; the built-in environment has an event more
        ((re.split(r"\W", topic)[-1], *key), value)
        for (topic, *key), value in summary.statistics.items()
        if key[0] != "no_piece_fits"
    ]
    assert len(statistics) >= 9
    return plain([seen, sorted(statistics, key=str), summary.kpis, summary.reward])


def plain(value: Any) -> Any:
    """The same with lists in place of arrays, to be compared."""
    if isinstance(value, dict):
        return {name: plain(child) for name, child in value.items()}
    if isinstance(value, list | tuple):
        return [plain(child) for child in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def test_tests_that_pages_name_exist() -> None:
    text = PAGES["often_asked_for.md"].read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)`", text)
    assert len(named) >= 8
    assert not [name for name in named if not (DOCS.parent / name).is_file()]


def test_the_index_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\((\S+\.md)\)", PAGES["index.md"].read_text(encoding="utf-8")))
    assert linked >= set(PAGES) - {"index.md"}


# ------------------------------------------------------------------------------------- what the tests themselves do


def test_an_output_is_compared_line_by_line_and_dots_stand_for_anything() -> None:
    assert matches("a 1\nb\n", "a 1  \nb\n\n")
    assert not matches("a 1\n", "a 2\n")
    assert not matches("a 1\n", "a 1\nb\n")
    assert matches("a ... z\n...\nend\n", "a b c z\n1\n2\nend\n")
    assert not matches("a ... z\nend\n", "a b c z\n1\nend\n")


def test_only_numbers_and_widths_may_vary_where_numbers_vary() -> None:
    assert matches("loss | 1,234.5\n====\n", "loss |  -7e-05\n======\n", numbers_vary=True)
    assert not matches("loss | 1\n", "gain | 1\n", numbers_vary=True)
    assert matches("epoch 12 | 7 s\n   12|loss|3\n", "epoch 12 | 8.1 s\n   12|loss|4\n", numbers_vary=True)
    assert not matches("epoch 12 | 7 s\n", "epoch 11 | 7 s\n", numbers_vary=True)
    assert not matches("   12|loss|3\n", "   11|loss|3\n", numbers_vary=True)


def test_a_renewed_output_keeps_the_selection_of_lines() -> None:
    output = "head\nreward | 12\nother | 1\nlast 5 s\n"
    assert renew_output("old\n", output) == output
    assert renew_output("...\nreward | 3\n...\nlast ... s\n", output) == "...\nreward | 12\n...\nlast ... s\n"
    assert renew_output("...\ngone | 3\nother | 2\n...\n", output) == "...\ngone | 3\nother | 1\n...\n"


def test_pages_run_in_order_with_their_files_and_say_what_came(folder: Path) -> None:
    page = folder / "page.md"
    page.write_text(
        "```python\n# file: shop/price.py\nPRICE = 3\n```\n"
        "```python\nfrom shop.price import PRICE\nprint(PRICE)\n```\n\n```text\n3\n```\n"
        "```diff\n# file: shop/price.py\n-PRICE = 3\n+PRICE = 4\n```\n"
        "```python\nfrom shop.price import PRICE\nprint(PRICE)\n```\n```text\n5\n```\n"
        "<!-- slow -->\n```python\nprint('slow')\n```\n```text\nslow\n```\n"
        "```console\ntensorboard --logdir outputs\nmaze-pl list \\\n  envs # which\n```\n",
        encoding="utf-8",
    )
    assert [commands(b.text) for b in blocks(page.read_text(encoding="utf-8")) if b.kind == "console"] == [
        ["maze-pl list    envs"]
    ]
    page.write_text(page.read_text(encoding="utf-8").partition("```console")[0], encoding="utf-8")
    (wrong,) = run_page(page, folder)
    assert wrong == "page.md, line 23: in truth it is\n4\n"
    assert run_page(page, folder, renew=True) == []
    assert run_page(page, folder) == []
    assert "\n4\n```\n<!-- slow -->" in page.read_text(encoding="utf-8")
