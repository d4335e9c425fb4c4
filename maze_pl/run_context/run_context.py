"""Context of a training run in Python."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from maze_pl.agents import TorchPolicy
from maze_pl.config.pieces import RUN_CONFIG
from maze_pl.config.search_path import OUTPUT_FOLDER, ConfigurationError, as_word, find
from maze_pl.core.actor_id import ActorID
from maze_pl.migration.documented import TRAINING, fit_options, product, resume_options
from maze_pl.migration.documented_names import GROUPS
from maze_pl.modules import AlgorithmModule
from maze_pl.run_context.commands import assembled_configuration, assembled_data, run_command, silenced
from maze_pl.run_context.descriptions import Descriptions, importable
from maze_pl.run_context.earlier_run import EarlierRun
from maze_pl.runs.loading import load, load_data
from maze_pl.runs.recorders import without_recorders
from maze_pl.runs.rollout import Trajectory, rollout
from maze_pl.runs.run_directory import new_directory

_OF_LISTS: Final = ("wrappers",)  # groups whose value may be a list without being several values


class RunContext:
    """Trains, evaluates and plays from Python, as `maze-pl fit`, `validate` and `rollout` do.

    Each component is the name of a configuration, a dict with `class_path` and `init_args`, a class
    or function, or an object. The context translates them into a command line and runs it in this
    process, so that a run can be continued by `maze-pl fit --resume`, and vice versa.
    Objects that YAML cannot hold, such as lambdas, must be given again to continue such a run.

    Args:
        env: Environment: a name such as `gym_env`, a dict, or a callable that makes one.
        algorithm: Algorithm: a name such as `ppo`, a dict, a class, a `functools.partial` of a class,
            or a module, of which a new one with the same arguments is trained; `es` by default.
        model: Networks: a name such as `vector_obs`, a dict, or a composer.
        critic: Critic of the networks: a name such as `template_state`, a dict, or a composer.
        policy: Policy of the networks: a dict, or a composer.
        wrappers: Wrappers, the innermost first: a name, a list of dicts and callables, or a dict
            from class paths to arguments.
        runner: Where environments run: `dev`, `local`, `ray`, or an engine.
        experiment: Name of a file in `experiment/`.
        overrides: Dotted key, such as `env.name` or `algorithm.lr`, or an option of `maze-pl fit`,
            such as `data.n_envs` -> value.
        configuration: Name of a configuration to start from, instead of the documented defaults of
            the algorithm.
        run_dir: Directory of a run. If it holds an earlier run, `train` continues this run if only
            `overrides`, the objects that the run was given, and its environment and wrappers are
            passed; with other components, which must include `algorithm`, a new run starts with its
            weights and wrapper statistics. Otherwise the new run is written there.
        silent: Print nothing.
        multirun: Train one run for each combination of values, where `overrides` contain lists of
            values or components are lists of names; see `runs`.
        trust: Allow the run in `run_dir` to name any class, and thereby to execute any code.

    Attributes:
        runs: Contexts of all runs; only the context itself if there is a single run.
        continues: Whether `train` continues the run in `run_dir`.

    Raises:
        ConfigurationError: A component or a key does not exist (the message has the nearest name),
            or they contradict each other; or there is only a `run_dir`, which holds no run; or it
            holds one, which cannot be continued, and there is no `algorithm`.
        TypeError: A component is of an unsuitable type.

    Example:
        >>> context = RunContext(algorithm="ppo", overrides={"env.name": "CartPole-v1"})
        >>> context.train(n_epochs=5)  # doctest: +SKIP
        >>> trajectories = context.rollout(episodes=3)  # doctest: +SKIP
    """

    def __init__(
        self,
        *,
        env: Any = None,
        algorithm: Any = None,
        model: Any = None,
        critic: Any = None,
        policy: Any = None,
        wrappers: Any = None,
        runner: Any = None,
        experiment: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        configuration: str | None = None,
        run_dir: str | Path | None = None,
        silent: bool = False,
        multirun: bool = False,
        trust: bool = False,
    ) -> None:
        components = {
            "env": env,
            "algorithm": algorithm,
            "model": model,
            "critic": critic,
            "policy": policy,
            "wrappers": wrappers,
            "runner": runner,
            "experiment": experiment,
        }
        given = {name: value for name, value in components.items() if value is not None}
        keys = dict(overrides or {})
        self._run_dir = None if run_dir is None else Path(run_dir)
        self._is_silent = silent
        self._is_trusted = trust
        self._trained: Path | None = None
        self._acting: tuple[Path, AlgorithmModule] | None = None
        self.runs: list[RunContext] = [self]
        self.continues = False
        self._repeats = False  # what has trained the run in `run_dir`
        if multirun:
            others = {"configuration": configuration, "silent": silent, "trust": trust}
            self.runs = self._divided(given, keys, others)
            return
        for name in GROUPS:
            if name in keys and name not in given:
                given[name] = keys.pop(name)
        with silenced(silent):
            self._translate(given, keys, configuration)

    # ------------------------------------------------------------------------------------------------- translation

    def _divided(self, given: Mapping[str, Any], keys: Mapping[str, Any], others: dict[str, Any]) -> list["RunContext"]:
        """Return a context for each combination of values."""
        if self._run_dir is not None and (self._run_dir / RUN_CONFIG).is_file():
            raise ConfigurationError(f"run_dir={self._run_dir} holds one run: name a new folder for those of multirun")
        names = {name: value for name, value in given.items() if name not in _OF_LISTS}
        fixed = {name: value for name, value in given.items() if name in _OF_LISTS}
        combinations = product({**names, **keys}, lambda value: value if isinstance(value, list) else [value])
        runs = []
        for combination in combinations:
            chosen = {name: combination[name] for name in names}
            overrides = {key: combination[key] for key in keys}
            runs.append(RunContext(**fixed, **chosen, overrides=overrides, **others))
        return runs

    def _translate(self, given: dict[str, Any], keys: Mapping[str, Any], configuration: str | None) -> None:
        """Translate components and keys into options of `maze-pl fit`."""
        descriptions = Descriptions()
        root = configuration or TRAINING
        groups: dict[str, Any] = {}
        for name, value in given.items():
            describe = getattr(descriptions, name, None)
            groups[name] = descriptions.of(name, value) if describe is None else describe(value)
        algorithm = groups.get("algorithm")
        if isinstance(algorithm, dict) and "class_path" not in algorithm:
            keys = {**{f"algorithm.{name}": value for name, value in groups.pop("algorithm").items()}, **keys}
        elif isinstance(algorithm, dict) and configuration is None:
            root = _root_of(given["algorithm"]) or root
        described = {key: descriptions.of(key, value) for key, value in keys.items()}
        described = {key: as_word(value) if isinstance(value, str) else value for key, value in described.items()}
        self._objects = descriptions.objects
        is_run = self._run_dir is not None and (self._run_dir / RUN_CONFIG).is_file()
        if self._run_dir is not None and not (is_run or given or keys or configuration):
            remedy = "name one, or give env, algorithm or configuration to train a new run there"
            raise ConfigurationError(f"run_dir={self._run_dir} holds no run to continue: {remedy}")
        earlier = EarlierRun(Path(str(self._run_dir))) if is_run else None
        others = {} if earlier is None else earlier.others_of(groups, described)
        self.continues = earlier is not None and configuration is None and not others
        if earlier is not None and self.continues:
            earlier.require_script_classes()
            chosen = {name: node for name, node in groups.items() if name not in self._objects}
            words = resume_options(str(self._run_dir), chosen, described)
        elif earlier is None or earlier.has_failed:
            words = fit_options(groups, described, root)
            words += [] if self._run_dir is None else ["--run_dir", str(self._run_dir)]
        else:
            if root == TRAINING and not {"algorithm", "experiment"}.intersection(groups):
                components = " and ".join(others.values())
                fault = f"holds a run that cannot be continued with {components}"
                remedy = f"leave {' and '.join(others)} out to continue it"
                other = "give algorithm to train a new run with its weights"
                raise ConfigurationError(f"run_dir={self._run_dir} {fault}: {remedy}, or {other}")
            words = fit_options(groups, described, root)
            self._repeats = earlier.was_started_by(["fit", *words, "--run_dir", str(self._run_dir)])
            words += ["--warm-start", str(self._run_dir)]
        if self._is_trusted:
            words.append("--trust")
        self._words = words

    # ---------------------------------------------------------------------------------------------------- training

    @property
    def command(self) -> list[str]:
        """The command line of training after `maze-pl`; stand-ins are in place of objects."""
        self._require_one_run()
        return ["fit", *self._words]

    def train(self, n_epochs: int | None = None) -> None:
        """Train a new run, or continue the one in `run_dir`.

        Args:
            n_epochs: Number of epochs of the run, as the option `trainer.max_epochs`; None leaves it to
                the configuration.

        Raises:
            ConfigurationError: The configuration asks for something impossible.
            KeyboardInterrupt: INT has stopped the run, which can be continued.
        """
        options = [] if n_epochs is None else ["--trainer.max_epochs", str(n_epochs)]
        if self._repeats:
            fact = f"{self._run_dir} holds a run of the same arguments"
            effect = f"a new one starts with its weights, in a new folder of {OUTPUT_FOLDER}"
            remedy = f"RunContext(run_dir={str(self._run_dir)!r}) continues it"
            warnings.warn(f"{fact}: {effect}; {remedy}", UserWarning, stacklevel=2)
        if self.runs == [self]:
            self._train(options)
            return
        folder = self._run_dir or _new_folder()
        for number, run in enumerate(self.runs):
            run._train([*options, "--run_dir", str(folder / f"run_{number}")])

    def _train(self, options: Sequence[str]) -> None:
        command = [*self.command, *options]
        keep = self._keep_directory
        try:
            run_command(command, self._objects, is_silent=self._is_silent, on_end=keep)
        finally:
            self._acting = None  # also if training has failed: its checkpoints may be new

    def _keep_directory(self, run_dir: str) -> None:
        if run_dir and Path(run_dir, RUN_CONFIG).is_file():  # not stopped before anything was trained
            self._trained = Path(run_dir)

    @property
    def run_directory(self) -> Path:
        """Directory of the trained run.

        Raises:
            RuntimeError: Nothing has been trained yet.
        """
        self._require_one_run()
        if self._trained is not None:
            return self._trained
        if self.continues and self._run_dir is not None:
            return self._run_dir
        raise RuntimeError("nothing was trained yet: call train, or give the run_dir of an earlier run")

    def _require_one_run(self) -> None:
        if self.runs != [self]:
            n_runs = len(self.runs)
            raise RuntimeError(f"this context has {n_runs} runs: use those of its attribute runs, such as runs[0]")

    def assembled(self) -> dict[str, Any]:
        """Return the configuration of the run, as `train` saves it in `config.yaml`."""
        return assembled_configuration(self.command, self._objects, is_silent=self._is_silent)

    # -------------------------------------------------------------------------------------------- the trained agent

    def evaluate(self) -> dict[str, float]:
        """Evaluate the trained run as `maze-pl validate` does.

        Returns:
            Name of a statistic, such as `eval/return` -> value.
        """
        trust = ["--trust"] if self._trusts_run else []
        command = ["validate", str(self.run_directory), *trust]
        done = run_command(command, self._objects, is_silent=self._is_silent)
        return {name: float(value) for name, value in done.trainer.callback_metrics.items()}

    @property
    def agent(self) -> AlgorithmModule:
        """The trained module: that of the best checkpoint or, without one, of the last."""
        return load(self.run_directory, trust=self._trusts_run, objects=self._objects)

    @property
    def policy(self) -> TorchPolicy:
        """The policy of `agent`."""
        return self.agent.policy

    @property
    def env_factory(self) -> Callable[[], Any]:
        """Function that makes environments with the run's wrappers and their statistics."""
        self._require_one_run()
        if self._trained is None and not self.continues:
            return assembled_data(self.command, self._objects, is_silent=self._is_silent).make_env  # type: ignore[no-any-return]
        return load_data(self.run_directory, trust=self._trusts_run, objects=self._objects).make_env

    def compute_action(
        self,
        observation: Mapping[str, Any],
        actor_id: ActorID | None = None,
        *,
        deterministic: bool = True,
        policy_state: dict[Any, Any] | None = None,
    ) -> dict[str, Any]:
        """Compute the action of the trained agent for one observation.

        Args:
            observation: Name -> array [*shape], as an environment of `env_factory` returns it.
            actor_id: The actor; optional if there is only one.
            deterministic: Take the most likely action instead of sampling.
            policy_state: Needed for recurrent networks, see `agent`.

        Returns:
            Head -> action, for `env.step`.
        """
        run = self.run_directory
        if self._acting is None or self._acting[0] != run:
            self._acting = (run, self.agent)
        step_key, agent_id = (None, 0) if actor_id is None else (actor_id.step_key, actor_id.agent_id)
        agent = self._acting[1]
        return agent.act(observation, step_key, agent_id, deterministic=deterministic, policy_state=policy_state)

    def rollout(
        self, episodes: int | None = None, seed: int = 0, *, policy: Any = None, **options: Any
    ) -> list[Trajectory]:
        """Play episodes, those of `maze-pl rollout` with the same options.

        Args:
            episodes: Number of episodes; None means one for each of `episode_seeds`, or one.
            seed: Determines the episodes and the policy's random numbers.
            policy: A policy as `maze_pl.rollout` takes it; None means that of the trained agent.
            options: Further arguments of `maze_pl.rollout`, such as `max_steps` and `record`;
                `env`, `wrappers`, `action_masks` and `max_agents` replace those of the run.

        Returns:
            The trajectories, in the order of the episodes.
        """
        if policy is not None and self._trained is None and not self.continues:
            data = assembled_data(self.command, self._objects, is_silent=self._is_silent)
        else:
            data = load_data(self.run_directory, trust=self._trusts_run, objects=self._objects)
            options = {"wrapper_statistics": data.wrapper_statistics(), **options}
        actor = self.agent if policy is None else policy
        arrangement = data.rollout_options
        arrangement["wrappers"] = without_recorders(arrangement["wrappers"])
        return rollout(policy=actor, episodes=episodes, seed=seed, **{**arrangement, **options})

    @property
    def _trusts_run(self) -> bool:
        """True if the trained run may name any class: the user trusts it, or it is that of this context."""
        return self._is_trusted or (self._trained is not None and not self.continues)


def _new_folder() -> Path:
    """Return a new folder for several runs."""
    return new_directory(Path(OUTPUT_FOLDER, "multirun"), True, ExitStack())


def _root_of(algorithm: Any) -> str | None:
    """Return the configuration with the documented defaults of an algorithm or of its nearest ancestor."""
    target = getattr(algorithm, "func", algorithm)
    if isinstance(target, AlgorithmModule):
        target = type(target)
    for ancestor in getattr(target, "__mro__", ()):
        name = f"{TRAINING}/{ancestor.__name__.lower()}"
        if importable(ancestor) is not None and find(name) is not None:
            return name
    return None
