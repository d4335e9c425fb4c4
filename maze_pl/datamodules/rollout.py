"""The data module of on-policy algorithms: its batches are rollouts of the policy that is being trained."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, Literal, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import pytorch_lightning as pl
import torch
from pytorch_lightning.utilities import rank_zero_info
from torch import distributed

from maze_pl.collect.collector import Collector
from maze_pl.collect.episodes import play_episodes
from maze_pl.collect.serialization import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy, evaluation_mode
from maze_pl.core.rollout import Evaluation, Rollout
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator, require_count
from maze_pl.envs.gym_env import GymMazeEnv
from maze_pl.envs.trajectory_record import GifFiles
from maze_pl.envs.vector import NativeVectorEnv, SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.vector.wrapped import load_shared_states, make_wrapped, shared_states_of, wrapper_stack
from maze_pl.envs.wrapper import wrappers_of
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.trajectory_recording_wrapper import TrajectoryRecordingWrapper

Env = gymnasium.Env[Any, Any]
T = TypeVar("T")


class Source(Generic[T]):
    """A sized iterable of batches that are made when they are asked for.

    Args:
        make: Makes one: collects a rollout, or plays the episodes of an evaluator.
        length: Batches of an epoch.
    """

    def __init__(self, make: Callable[[], T], length: int = 1) -> None:
        self._make, self._length = make, length

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        for _ in range(self._length):
            yield self._make()

    def state_dict(self) -> dict[str, Any]:
        """Empty: the data module keeps where its environments are. Lightning asks for it, to resume within an epoch."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing: see `state_dict`."""


class RolloutDataModule(pl.LightningDataModule):
    """Owns the environments: collects rollouts for training and plays episodes for evaluation.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted.
        wrappers: Wrap it, the first one innermost.
        n_envs: Environments of each rank that play at the same time; 0 means one for each core.
        n_rollout_steps: Environment steps of each environment in a rollout.
        vectorization: Whether environments live in this process (`sequential`), in processes of their own
            (`subprocess`), or in gymnasium's own vector implementation of them (`native`), which is for environments
            that gymnasium makes by name and that nothing is wrapped around; see `NativeVectorEnv`.
        epoch_length: Rollouts of an epoch, which is followed by evaluation.
        evaluators: Evaluators by name; a single one named `eval` if None, and none at all if empty.
        seed: Seed of the run; that of `seed_everything` if None.
        action_masks: Action head -> observation whose nonzero entries are allowed, beyond what the environment
            declares itself.
        max_agents: For sub-steps whose number of agents changes, how many may be alive at once.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        on_nondeterminism: What happens on resuming to an episode that does not come out where it was when it is
            played again: `restart` it with a message, or `refuse`.
    """

    def __init__(
        self,
        env: Callable[[], Env],
        wrappers: list[Callable[[Env], Env]] | None = None,
        n_envs: int = 0,
        n_rollout_steps: int = 100,
        vectorization: Literal["sequential", "subprocess", "native"] = "sequential",
        epoch_length: int = 25,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        on_nondeterminism: Literal["restart", "refuse"] = "restart",
    ) -> None:
        super().__init__()
        require_count("n_envs", n_envs, 0)
        require_count("n_rollout_steps", n_rollout_steps, 1)
        require_count("epoch_length", epoch_length, 1)
        require_count("n_normalization_samples", n_normalization_samples, 1)
        if not callable(env) or not all(map(callable, wrappers or [])):
            raise TypeError(
                f"env={env!r} and wrappers={wrappers!r} must be callables that make and wrap an environment; "
                "write env=lambda: GymMazeEnv('CartPole-v1'), for example"
            )
        for name, evaluator in (evaluators or {}).items():
            if not isinstance(evaluator, RolloutEvaluator):
                raise TypeError(f"evaluators[{name!r}]={evaluator!r} must be a RolloutEvaluator")
        if vectorization not in ("sequential", "subprocess", "native"):
            raise ValueError(f"vectorization={vectorization!r} must be 'sequential', 'subprocess' or 'native'")
        if on_nondeterminism not in ("restart", "refuse"):
            raise ValueError(f"on_nondeterminism={on_nondeterminism!r} must be 'restart' or 'refuse'")
        self.n_envs = n_envs or len(os.sched_getaffinity(0))
        self.n_rollout_steps, self.vectorization, self.epoch_length = n_rollout_steps, vectorization, epoch_length
        self.evaluators = {"eval": RolloutEvaluator()} if evaluators is None else dict(evaluators)
        if "train" in self.evaluators:
            raise ValueError("no evaluator can be named 'train': that is what statistics of training are named")
        self.seed = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.n_normalization_samples, self.on_nondeterminism = n_normalization_samples, on_nondeterminism
        self._factory = partial(make_wrapped, env, list(wrappers or []))
        self._action_masks, self._max_agents = action_masks, max_agents
        self._spec: Spec | None = None
        self._collector: Collector | None = None
        self._evaluation_envs: dict[str, VectorEnv] = {}
        self._shared: dict[str, Any] | None = None  # what wrappers have learned
        self._ended: dict[str, Any] | None = None  # state of the environments when the last fit ended
        self._restored: dict[str, Any] | None = None
        self._has_loaded = False

    # --------------------------------------------------------------------------------------------- description

    @property
    def spec(self) -> Spec:
        """What agents see and do, read from an environment made for the purpose."""
        if self._spec is None:
            env = self._factory()
            self._spec = Spec.of(env, self._max_agents, self._action_masks)
            env.close()
        return self._spec

    @property
    def rollout_size(self) -> int:
        """Environment steps of a rollout on each rank."""
        return self.n_envs * self.n_rollout_steps

    def make_env(self) -> LogStatsWrapper:
        """One wrapped environment with frozen statistics, as evaluation uses it."""
        env = self._factory()
        load_shared_states(wrapper_stack(env), self._learned(), freeze=True)
        return env

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget the checkpoint of a former run; that of this one is restored after this hook."""
        self._restored, self._has_loaded = None, False
        if stage == "fit":
            self._ended = None
        for name, evaluator in self.evaluators.items():
            if evaluator.render:
                self._factory_of(name)().close()  # fails now, and not after an epoch, where nothing can be drawn

    def train_dataloader(self) -> Source[Rollout]:
        """Rollouts, collected when asked for."""
        return Source(self._collect, self.epoch_length)

    def val_dataloader(self) -> list[Source[Evaluation]]:
        """For each evaluator, its episodes."""
        return [Source(partial(self._evaluate, name)) for name in self.evaluators]

    def _evaluate(self, name: str) -> Evaluation:
        return self.evaluate(name, self._policy())

    def test_dataloader(self) -> list[Source[Evaluation]]:
        """As for validation."""
        return self.val_dataloader()

    def teardown(self, stage: str) -> None:
        """End the environments; their state is kept for checkpoints that are written later."""
        if stage == "fit" and self._collector is not None:
            self._ended = self._collector.state_dict()
        self._close(stage)

    def _close(self, stage: str) -> None:
        if stage == "fit" and self._collector is not None:
            self._collector.vector.close()
            self._collector = None
        for vector in self._evaluation_envs.values():
            vector.close()
        self._evaluation_envs = {}

    def on_exception(self, exception: BaseException) -> None:
        """End the environments, since no teardown follows an exception."""
        self._close("fit")

    # ------------------------------------------------------------------------------------------------ training

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    def _vector(self, n_envs: int, evaluator: str | None = None, **options: Any) -> VectorEnv:
        kind = SubprocVectorEnv if self.vectorization == "subprocess" else SequentialVectorEnv
        return kind([self._factory_of(evaluator)] * n_envs, spec=self.spec, **options)

    def _factory_of(self, evaluator: str | None) -> Callable[[], LogStatsWrapper]:
        """What makes the environments of an evaluator, or of training."""
        if evaluator is None or not self.evaluators[evaluator].render:
            return self._factory
        env, wrappers = self._factory.args
        # Innermost, where it leaves the positions of the others in the stack as they are.
        record = partial(TrajectoryRecordingWrapper, writer=GifFiles(f"renderings/{evaluator}"), n_episodes=0)
        return partial(make_wrapped, env, [record, *wrappers])

    def _native_vector(self, n_envs: int, **options: Any) -> VectorEnv:
        """Gymnasium's own vector implementation, if nothing speaks against it."""
        instead = "; use vectorization=sequential or subprocess"
        env = self._factory()
        env.close()
        names = [type(wrapper).__name__ for wrapper in wrappers_of(env) if type(wrapper) is not LogStatsWrapper]
        if names:
            raise ValueError(f"vectorization=native cannot wrap single environments, but there are {names}{instead}")
        inner: Any = env.env
        if type(inner) is not GymMazeEnv or inner.made_by is None:
            raise ValueError(
                f"vectorization=native needs an environment that is given by its name in gymnasium, such as "
                f"GymMazeEnv('CartPole-v1'), not {type(inner).__name__}{instead}"
            )
        name, kwargs = inner.made_by
        return NativeVectorEnv(name, n_envs, spec=self.spec, **options, **kwargs)

    def _policy(self) -> Any:
        if self.trainer is None or self.trainer.lightning_module is None:
            raise RuntimeError("rollouts need a policy: use this data module in Trainer.fit or Trainer.validate")
        return self.trainer.lightning_module.policy

    def _collect(self) -> Rollout:
        if self._collector is None:
            self._collector = self._start()
            restored, self._restored = self._restored, None
            if restored is not None:
                self._restore(self._collector, restored)
        policy = self._policy()
        with evaluation_mode(policy):
            rollout = self._collector.collect(policy)
        if self._shared:  # bring together what the wrappers of all environments on all ranks have learned
            vector = self._collector.vector
            states = [state for part in self._gather(vector.shared_states()) for state in part]
            self._shared = vector.merge_shared_states(states)
            vector.load_shared_states(self._shared)
        return rollout

    def _start(self) -> Collector:
        """Make the environments."""
        self._refuse_foreign_checkpoint()
        learned = self._learned()
        make = self._native_vector if self.vectorization == "native" else self._vector
        vector = make(self.n_envs, seed=self.seed, first_env_index=self._rank * self.n_envs)
        vector.load_shared_states(learned)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "policy", self._rank))
        return Collector(vector, self.n_rollout_steps, generator)

    def _refuse_foreign_checkpoint(self) -> None:
        """Lightning files a data module's state under the name of its class, and passes over one that is not there."""
        if self.trainer is not None and self.trainer.ckpt_path is not None and not self._has_loaded:
            raise ValueError(
                f"the checkpoint {self.trainer.ckpt_path} holds no state of a {type(self).__qualname__}; resume with "
                "the class of data module that wrote it, or start anew from its weights by --warm-start"
            )

    def _restore(self, collector: Collector, restored: dict[str, Any]) -> None:
        """Bring the environments to where a checkpoint left them."""
        then, now = (restored["world_size"], restored["n_envs"]), (self._world_size(), self.n_envs)
        if then != now:
            rank_zero_info(
                f"environments start new episodes: the checkpoint was written by {then[0]} ranks with {then[1]} "
                f"environments each, this run has {now[0]} ranks with {now[1]}"
            )
            begun = [history["episode"] for rank in restored["ranks"] for history in rank.get("histories", [])]
            begun += [episode for rank in restored["ranks"] for episode in rank.get("episodes", [])]
            collector.start([max(begun, default=-1) + 1] * self.n_envs)  # none that was played before
            return
        strayed = collector.load_state_dict(restored["ranks"][self._rank])
        if strayed:
            reason = (
                "are not deterministic: their episodes did not come out where the checkpoint left them when they were "
                "played again"
                if collector.vector.can_replay
                else "cannot be brought back to where they were, since they are native vector environments"
            )
            message = f"environments {strayed} of rank {self._rank} {reason}"
            if self.on_nondeterminism == "refuse":
                raise ValueError(message + "; on_nondeterminism=restart starts new episodes instead")
            rank_zero_info(message + "; they start new episodes")

    def _learned(self) -> dict[str, Any]:
        """What wrappers have learned, estimated by the first rank on first need."""
        if self._shared is None:
            states = None
            if self._rank == 0:
                env = self._factory()
                seed = derive_seed(self.seed, "normalization")
                env.estimate(self.n_normalization_samples, seed)
                states = shared_states_of(wrapper_stack(env))
                env.close()
            self._shared = self._gather(states)[0]
            if self._shared:
                self._refuse_foreign_checkpoint()
        return self._shared

    # ---------------------------------------------------------------------------------------------- evaluation

    def evaluate(self, name: str, policy: Policy, learned: dict[str, Any] | None = None) -> Evaluation:
        """Play the episodes of an evaluator, always the same ones; every rank plays its share of them.

        Args:
            name: Which evaluator.
            policy: Chooses the actions.
            learned: What wrappers have learned, as `warm_start` takes it; what they know now if None.
        """
        evaluator = self.evaluators[name]
        episodes = range(self._rank, evaluator.n_episodes, self._world_size())
        if learned is None:
            learned = self._learned()
        if name not in self._evaluation_envs:
            n_envs = max(1, min(evaluator.n_envs or 8, len(episodes)))
            seed = derive_seed(self.seed, "evaluation", name)
            self._evaluation_envs[name] = self._vector(n_envs, name, seed=seed, autoreset=False, seed_by_env=False)
        vector = self._evaluation_envs[name]
        vector.load_shared_states(learned, freeze=True)
        generator = torch.Generator().manual_seed(derive_seed(self.seed, "evaluation", name, self._rank))
        with evaluation_mode(policy):
            summaries = play_episodes(
                vector, policy, episodes, deterministic=evaluator.deterministic, generator=generator
            )
        return Evaluation(name, summaries)

    # -------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """State of the environments of all ranks and of what wrappers have learned; every rank must call it."""
        if self._collector is None and self._restored is not None:
            return self._restored  # nothing has happened since
        shared = {"shared": to_tensors(self._shared)}
        collector = self._ended if self._collector is None else self._collector.state_dict()
        if collector is None:
            return shared
        return shared | {"ranks": self._gather(collector), "world_size": self._world_size(), "n_envs": self.n_envs}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next rollout where `state_dict` was taken."""
        self._shared = from_tensors(state_dict["shared"]) or None  # wrappers that are new estimate theirs
        self._restored = state_dict if "ranks" in state_dict else None
        self._has_loaded = True

    def warm_start(self, shared: dict[str, Any]) -> None:
        """Take over what the wrappers of another run have learned, without the state of its environments."""
        self._shared = shared or None

    def __getstate__(self) -> dict[str, Any]:
        """For processes that are spawned; factories of environments may be lambdas."""
        return {**self.__dict__, "_factory": cloudpickle.dumps(self._factory)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _factory=cloudpickle.loads(state["_factory"]))

    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1

    def _gather(self, value: Any) -> list[Any]:
        """The value of every rank, in their order."""
        if self._world_size() == 1:
            return [value]
        values: list[Any] = [None] * self._world_size()
        distributed.all_gather_object(values, value)
        return values
