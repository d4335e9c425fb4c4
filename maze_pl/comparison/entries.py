"""Entries of a comparison: runs of one configuration, or policies, with the environment that they play in."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gymnasium

from maze_pl.comparison.results import ComparedCheckpoint
from maze_pl.comparison.sources import (
    Source,
    baseline_key,
    is_configuration,
    is_same,
    shown,
    single_sources,
    source_key,
)
from maze_pl.config.assembling import SEEDS_FILE
from maze_pl.config.class_paths import is_class_path
from maze_pl.config.factories import Factory
from maze_pl.config.learned_options import learned_options, with_class_path
from maze_pl.config.pieces import GROUP_NAME, RUN_CONFIG, require_run_directory
from maze_pl.config.search_path import ConfigurationError, find, read
from maze_pl.config.trust import UntrustedError, foreign_names, import_folders, refusal
from maze_pl.runs.bundle_policy import BundlePolicy, is_bundle
from maze_pl.runs.checkpoint_files import (
    best_or_last,
    checkpoint_digest,
    checkpoint_path,
    read_checkpoint,
    run_configuration,
    wrapper_statistics_in,
)
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.part_factories import to_factory
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.run_checkpoints import directory_of_run
from maze_pl.runs.searching import check_search
from maze_pl.runs.short_names import shortest_ending

_NAMES = ("random", "heuristic")
_ENVIRONMENT = ("env", "wrappers", "action_masks", "max_agents")


@dataclass
class Player:
    """A policy in its environment.

    Attributes:
        source: Run directory or name, as the user gave it.
        policy: Policy as for `rollout`.
        options: Environment, wrappers and so on, as arguments of `rollout`; empty if it plays in the
            environment of the first run.
        environment: Configuration of the environment; None if it is not that of a run.
        checkpoint: Its checkpoint; None if it is not the player of a run.
        statistics_in: Function from other options and what has them to the wrapper statistics of the run in
            them, see `EnvironmentDataModule.statistics_in`; None if it is not the player of a run.
    """

    source: str
    policy: Any
    options: dict[str, Any] = field(default_factory=dict)
    environment: Any = None
    checkpoint: ComparedCheckpoint | None = None
    statistics_in: Callable[[Mapping[str, Any], str], dict[str, Any]] | None = None


@dataclass
class Entry:
    """An entry of a comparison: a policy, or the runs of one configuration.

    Attributes:
        name: Its name in tables.
        players: A player for each run; a single one for a policy.
        is_baseline: Whether other entries are compared with it.
        configuration: Options of its runs that decide what they learn; None if others cannot join them.
        seeds: For each run `seed_everything` and `data.seed`, or None for a checkpoint; empty for a
            policy.
        given: What the user named: run directories, a folder of several seeds, or a policy.
    """

    name: str
    players: list[Player]
    is_baseline: bool = False
    configuration: Any = None
    seeds: list[Any] = field(default_factory=list)
    given: list[str] = field(default_factory=list)

    @property
    def sources(self) -> list[str]:
        """Run directories or the name of the policy, as the user gave them."""
        return [player.source for player in self.players]


def make_entries(
    sources: Sequence[Source],
    baselines: Sequence[Source],
    checkpoint: str,
    options: Mapping[str, Any],
    trust: bool,
    searches: Sequence[str] = (),
) -> list[Entry]:
    """Return the entries of a comparison; without baselines, the first one is the baseline.

    Runs that differ only in their seed become one entry, but those of a baseline never join others.

    Args:
        sources: Runs and policies to compare.
        baselines: Runs and policies that the others are compared with; may also be among the sources.
        checkpoint: Checkpoint of runs: `best` or `last`.
        options: Environment, wrappers and so on that all play with, as arguments of `rollout`;
            without an environment, each run plays in the environment of its training, and policies
            play in that of the first run.
        trust: Whether runs may name any class, because you know who made them.
        searches: Searches such as `puct:64`, each of which makes a further entry of each run; without
            runs, of each policy.

    Raises:
        ConfigurationError: A source is neither a run nor a policy, is given twice, plays in another environment, or has
            the name of another one.
    """
    entries: list[Entry] = []
    known: dict[Any, Source] = {}
    sources = single_sources(sources)
    baselines = single_sources(baselines)
    baseline_keys = [baseline_key(source, sources) for source in baselines]
    for source in sources:
        key = source_key(source)
        if key in known:
            raise ConfigurationError(f"{shown(source)} is given twice: name each run and each policy once")
        known[key] = source
        _add(entries, _entry_of(source, checkpoint, trust), is_baseline=key in baseline_keys)
    for source, key in zip(baselines, baseline_keys, strict=True):
        if key not in known:
            known[key] = source
            _add(entries, _entry_of(source, checkpoint, trust), is_baseline=True)
        elif isinstance(source, Mapping) and not is_same(source, known[key]):
            remedy = "give each of them a different name"
            raise ConfigurationError(f"the baseline {shown(source)} has the name of another run or policy: {remedy}")
    if not entries:
        raise ConfigurationError("there is nothing to compare: name run directories or policies, such as random")
    if not baselines:
        entries[0].is_baseline = True
    _set_names(entries)
    _set_environments([player for entry in entries for player in entry.players], options)
    return [*entries, *_with_searches(entries, searches)]


def _with_searches(entries: Sequence[Entry], searches: Sequence[str]) -> list[Entry]:
    """Return further entries, which search before they act.

    Raises:
        ConfigurationError: A search is malformed or given twice.
    """
    runs = [entry for entry in entries if entry.seeds]  # the others are policies
    further: list[Entry] = []
    for search in searches:
        if searches.count(search) > 1:
            raise ConfigurationError(f"search {search!r} is given twice")
        check_search(search)
        for entry in runs or entries:
            players = [replace(player, options={**player.options, "search": search}) for player in entry.players]
            further.append(replace(entry, name=f"{entry.name} {search}", players=players, is_baseline=False))
    return further


def _add(entries: list[Entry], made: Entry, *, is_baseline: bool) -> None:
    """Add the entry of a source to the one of the same configuration, or as a new one.

    Baselines and other entries stay apart, as there would be nothing to compare otherwise.
    """
    for entry in entries:
        is_same = entry.configuration is not None and entry.configuration == made.configuration
        if is_same and entry.is_baseline == is_baseline and made.seeds[0] not in entry.seeds:
            entry.players += made.players
            entry.given += made.given
            entry.seeds += made.seeds
            return
    made.is_baseline = is_baseline
    entries.append(made)


def _entry_of(source: Source, checkpoint: str, trust: bool) -> Entry:
    """Return the entry of a single source."""
    if isinstance(source, Mapping) and not is_configuration(source):
        ((name, named),) = source.items()
        return _named(str(name), named, checkpoint, trust)
    if isinstance(source, Mapping):
        policy = _described_policy(source, "policy")
        return _of_policy(policy.class_path if isinstance(policy, Factory) else _name_of(policy.func), policy)
    if not isinstance(source, str | Path):
        return _of_policy(_name_of(source), source)
    if Path(source, SEEDS_FILE).is_file():
        return _of_seeds(Path(source), str(Path(source)), checkpoint, trust)
    if is_bundle(source):
        return _of_policy(str(source), BundlePolicy(source))
    if Path(source).exists():
        return _of_run(Path(source), checkpoint, trust)
    return _of_policy(str(source), _named_policy(str(source)))


def _named(name: str, source: Source, checkpoint: str, trust: bool) -> Entry:
    """Return the entry of a source with another name; other runs do not join it."""
    is_described = isinstance(source, Mapping) and is_configuration(source)
    if not (isinstance(source, str | Path) or is_described):
        return _of_policy(name, source)
    entry = _entry_of(source, checkpoint, trust)
    if not entry.seeds:
        return _of_policy(name, entry.players[0].policy)
    return replace(entry, name=name, configuration=None)


def _of_policy(name: str, policy: Any) -> Entry:
    """Return the entry of a policy."""
    return Entry(name, [Player(name, policy)], given=[name])


def _of_seeds(folder: Path, name: str, checkpoint: str, trust: bool) -> Entry:
    """Return the entry of a folder of several seeds; others cannot join its runs.

    Raises:
        ConfigurationError: It has no runs yet.
    """
    run_dirs = [path.parent for path in sorted(folder.glob(f"seed_*/{RUN_CONFIG}"))]
    if not run_dirs:
        raise ConfigurationError(f"{name} should hold runs of several seeds, but there is none yet")
    runs = [_of_run(run_dir, checkpoint, trust) for run_dir in run_dirs]
    return Entry(name, [run.players[0] for run in runs], seeds=[run.seeds[0] for run in runs], given=[name])


def _name_of(policy: Any) -> str:
    """Return the name of a policy object, class or function."""
    return str(getattr(policy, "__name__", type(policy).__name__))


def _of_run(path: Path, checkpoint: str, trust: bool) -> Entry:
    """Return the entry of one run directory or checkpoint.

    Raises:
        ConfigurationError: It is neither, has no checkpoint, or needs trust.
    """
    if path.is_dir():
        require_run_directory(path)
    if checkpoint not in ("best", "last"):
        raise ConfigurationError(f"checkpoint={checkpoint!r} must be best or last; a file can be named as an entry")
    file = best_or_last(path) if checkpoint == "best" else checkpoint_path(path, ("last",))
    digest = checkpoint_digest(file)  # before loading: if the file is replaced in between, no later file has it
    content = read_checkpoint(file)
    configuration = run_configuration(content, file)
    folder = directory_of_run(path)
    if not trust and (foreign := foreign_names(dict(configuration), import_folders(folder))):
        raise UntrustedError(refusal(file, foreign, folder))
    data = load_data(file, trust=trust)
    options = data.rollout_options
    options["wrappers"] = without_recorders(options["wrappers"])
    options["wrapper_statistics"] = wrapper_statistics_in(content, file)
    environment = (configuration["data"].get("init_args") or {}).get("env")
    agent = load(file, trust=trust)
    compared = ComparedCheckpoint(str(file), digest, agent.env_steps)
    player = Player(str(path), agent, options, with_class_path(environment), compared, data.statistics_in)
    common, seed = learned_options(path) if path.is_dir() else (None, None)
    return Entry(str(path), [player], configuration=common, seeds=[seed], given=[str(path)])


def _named_policy(name: str) -> Any:
    """Return the policy that a name describes, as for `rollout`.

    Raises:
        ConfigurationError: It is not the name of a policy.
    """
    if name in _NAMES:
        return name
    path = find(name) if GROUP_NAME.fullmatch(name) else None
    if path is not None:
        node = read(path)
        if isinstance(node, dict) and isinstance(node.get("class_path"), str):
            return _described_policy(node, str(path))
    elif is_class_path(name):
        return Factory(name)
    files = "a run directory, a checkpoint, a bundle"
    expected = f"{files}, random, heuristic, a file such as policy/random_policy, or a class path"
    raise ConfigurationError(f"{name} is neither a run directory nor a policy; expected {expected}")


def _described_policy(node: Mapping[str, Any], name: str) -> Any:
    """Return the factory of a policy.

    Args:
        node: Its class path, with arguments.
        name: Name of the argument or file, for messages.

    Raises:
        ConfigurationError: It names no class, or its arguments are not in `init_args`.
    """
    try:
        return to_factory(node, name)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error)) from error


def _set_names(entries: Sequence[Entry]) -> None:
    """Name runs of one entry by the folder that they share, and shorten names to last folders that tell them apart."""
    joined = [entry for entry in entries if len(entry.given) > 1]
    folders = [os.path.commonpath([os.path.abspath(source) for source in entry.sources]) for entry in joined]
    for entry, folder in zip(joined, folders, strict=True):
        is_clear = _is_telling_name(Path(folder)) and folders.count(folder) == 1
        entry.name = folder if is_clear else f"{entry.name} and {len(entry.given) - 1} more"
    paths = [{entry.name, *entry.given} for entry in entries]
    for place, entry in enumerate(entries):
        others = set[str]().union(*paths[:place], *paths[place + 1 :])
        entry.name = shortest_ending(entry.name, others, n_parts=2)
    names: list[str] = []
    for entry in entries:
        number = 1
        name = entry.name
        while name in names:
            number += 1
            name = f"{entry.name} ({number})"
        entry.name = name
        names.append(name)


def _is_telling_name(folder: Path) -> bool:
    """True if the name of a folder says something about runs in it.

    The current folder, those around it, and the first ones below the root do not.
    """
    current = Path.cwd()
    return folder not in (current, *current.parents) and (current in folder.parents or len(folder.parts) > 2)


def _set_environments(players: Sequence[Player], options: Mapping[str, Any]) -> None:
    """Give all players their environments.

    Raises:
        ConfigurationError: There is none, or runs were trained in different ones.
    """
    runs = [player for player in players if player.options]
    given = {name: value for name, value in options.items() if value is not None}
    if runs and "env" not in given:
        _require_same_environment(runs)
    if not runs and "env" not in given:
        raise ConfigurationError("policies need an environment: name a run directory, or give --env (env in Python)")
    for player in runs:
        player.options = {**player.options, **given}
        if player.options["env"] is None:
            raise ConfigurationError(f"the run {player.source} has no environment: give one with --env (env in Python)")
        if "wrappers" in given and player.statistics_in is not None:
            player.options["wrapper_statistics"] = _statistics(player, player.statistics_in)
    common = runs[0].options if runs else given
    for player in players:
        player.options = player.options or dict(common)


def _statistics(player: Player, statistics_in: Callable[[Mapping[str, Any], str], dict[str, Any]]) -> dict[str, Any]:
    """Return the wrapper statistics of a run in the wrappers that all play with.

    Raises:
        ConfigurationError: The wrappers do not fit those of training, or an environment needs what is not here.
    """
    options = {name: player.options.get(name) for name in _ENVIRONMENT}
    try:
        return statistics_in(options, "the comparison")
    except ValueError as error:
        raise ConfigurationError(f"{player.source}: {error}") from error
    except (ImportError, OSError, gymnasium.error.Error) as error:
        use = "the statistics of other wrappers are found with the environments of training and of the comparison"
        fault = f"one of them cannot be made: {type(error).__name__}: {error}"
        remedy = "without --wrappers (wrappers in Python), those of training are used"
        raise ConfigurationError(f"{player.source}: {use}, and {fault}; {remedy}") from error


def _require_same_environment(runs: Sequence[Player]) -> None:
    """Raise ConfigurationError naming the first difference between the environments of runs."""
    first = runs[0]
    expected = _flat(first.environment)
    for run in runs[1:]:
        found = _flat(run.environment)
        for name in {**expected, **found}:
            if expected.get(name) != found.get(name):
                both = f"{name} is {found.get(name)!r} there and {expected.get(name)!r} in {first.source}"
                remedy = "compare runs of one environment, or let all play in the one that --env names"
                raise ConfigurationError(f"{run.source} was trained in another environment: {both}; {remedy}")


def _flat(node: Any, path: str = "env") -> dict[str, Any]:
    """Return the leaves of a configuration with their dotted paths."""
    if not isinstance(node, Mapping):
        return {path: node}
    leaves: dict[str, Any] = {}
    for key, value in node.items():
        leaves.update(_flat(value, path if key in ("init_args", "dict_kwargs") else f"{path}.{key}"))
    return {name: value for name, value in leaves.items() if value not in (None, {})}
