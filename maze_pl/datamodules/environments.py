"""What data modules with environments have in common: how they are made, evaluation, and what wrappers have learned."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Generic, TypeVar

import cloudpickle  # type: ignore[import-untyped]
import gymnasium
import pytorch_lightning as pl
from torch import Tensor, nn

from maze_pl.collect.engines import Engine, InProcessEngine
from maze_pl.collect.environment_actor import EnvironmentActor
from maze_pl.collect.storage import from_tensors, to_tensors
from maze_pl.core.actor_id import StepKey
from maze_pl.core.policy import Policy
from maze_pl.core.ranks import gather_objects
from maze_pl.core.rollout import Evaluation
from maze_pl.core.seeding import derive_seed
from maze_pl.core.spec import Spec
from maze_pl.datamodules.rollout_evaluator import RolloutEvaluator, require_count
from maze_pl.envs.trajectory_record import GifFiles
from maze_pl.envs.vector import SequentialVectorEnv, SubprocVectorEnv, VectorEnv
from maze_pl.envs.vector.vector_env import load_shared_states, make_wrapped, shared_states_of, wrapper_stack
from maze_pl.envs.wrapper import Wrapper
from maze_pl.envs.wrappers.log_stats_wrapper import LogStatsWrapper
from maze_pl.envs.wrappers.recording_wrappers import TrajectoryRecordingWrapper

Env = gymnasium.Env[Any, Any]
T = TypeVar("T")
_BY_VALUE = ("_factory", "_wrappers")


def make_frozen(factory: Callable[[], LogStatsWrapper], learned: dict[str, Any]) -> LogStatsWrapper:
    """An environment whose wrappers know what was learned, and learn no more."""
    env = factory()
    load_shared_states(wrapper_stack(env), learned, freeze=True)
    return env


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


class EnvironmentDataModule(pl.LightningDataModule):
    """Owns environments and plays episodes for evaluation; subclasses say what is trained on.

    Args:
        env: Builds one environment; a bare gymnasium environment is adapted. None if there is none: nothing is
            evaluated then, and a subclass must know the `spec`.
        wrappers: Wrap it, the first one innermost.
        evaluators: Evaluators by name; a single one named `eval` if None, and none at all if empty.
        seed: Seed of the run; that of `seed_everything` if None.
        action_masks: Action head -> observation whose nonzero entries are allowed, beyond what the environment
            declares itself.
        max_agents: For sub-steps whose number of agents changes, how many may be alive at once.
        n_normalization_samples: Observations from which wrappers estimate their statistics.
        engine: Where environments are; in this process if None.
    """

    vectorization = "sequential"
    _actor = EnvironmentActor

    def __init__(
        self,
        env: Callable[[], Env] | None,
        wrappers: list[Callable[[Env], Env]] | None = None,
        evaluators: dict[str, RolloutEvaluator] | None = None,
        seed: int | None = None,
        action_masks: dict[str, str] | None = None,
        max_agents: dict[StepKey, int] | None = None,
        n_normalization_samples: int = 1000,
        engine: Engine | None = None,
    ) -> None:
        super().__init__()
        require_count("n_normalization_samples", n_normalization_samples, 1)
        if not (env is None or callable(env)) or not all(map(callable, wrappers or [])):
            came = f"env={env!r} and wrappers={wrappers!r} must be callables that make and wrap an environment"
            raise TypeError(f"{came}; write env=lambda: GymMazeEnv('CartPole-v1'), for example")
        for name, evaluator in (evaluators or {}).items():
            if not isinstance(evaluator, RolloutEvaluator):
                raise TypeError(f"evaluators[{name!r}]={evaluator!r} must be a RolloutEvaluator")
        if env is None and evaluators:
            remedy = "give one as env, or evaluators=null"
            raise ValueError(f"evaluators={list(evaluators)} need an environment, but there is none: {remedy}")
        default = {} if env is None else {"eval": RolloutEvaluator()}
        self.evaluators = default if evaluators is None else dict(evaluators)
        if "train" in self.evaluators:
            raise ValueError("no evaluator can be named 'train': that is what statistics of training are named")
        self.seed = seed if seed is not None else int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self.n_normalization_samples, self.engine = n_normalization_samples, engine or InProcessEngine()
        self._factory = None if env is None else partial(make_wrapped, env, list(wrappers or []))
        self._action_masks, self._max_agents = action_masks, max_agents
        self._spec: Spec | None = None
        self._wrappers: dict[str, type[Wrapper]] = {}  # classes of the environment's wrappers, once they are known
        self._acting: Any = None  # the policy with which the engine was started
        self._has_begun = False  # so that its actors have a state of their own
        self._published, self._version = dict[str, Tensor](), 0
        self._shared: dict[str, Any] | None = None  # what wrappers have learned
        self._has_loaded = False

    # --------------------------------------------------------------------------------------------- description

    @property
    def spec(self) -> Spec:
        """What agents see and do, read from an environment made for the purpose."""
        if self._spec is None:
            env = self._factory_of()()
            self._spec = Spec.of(env, self._max_agents, self._action_masks)
            self._wrappers = {name: type(wrapper) for name, wrapper in wrapper_stack(env).items()}
            env.close()
        return self._spec

    def make_env(self) -> LogStatsWrapper:
        """One wrapped environment with frozen statistics, as evaluation uses it."""
        return make_frozen(self._factory_of(), self._learned())

    def _factory_of(self, evaluator: str | None = None, *inner: Any) -> Callable[[], LogStatsWrapper]:
        """What makes the environments of an evaluator, or of training, which may have further wrappers."""
        if self._factory is None:
            raise ValueError(f"this {type(self).__qualname__} has no environment: give one as env")
        if evaluator is not None and self.evaluators[evaluator].render:
            writer = GifFiles(f"renderings/{evaluator}")
            inner = (partial(TrajectoryRecordingWrapper, writer=writer, n_episodes=0),)
        env, wrappers = self._factory.args
        # Innermost, where they leave the positions of the others in the stack as they are.
        return partial(make_wrapped, env, [*inner, *wrappers]) if inner else self._factory

    # ------------------------------------------------------------------------------------------------- hooks

    def setup(self, stage: str) -> None:
        """Forget the checkpoint of a former run; that of this one is restored after this hook."""
        self._close()
        self._has_loaded = False
        for name in [name for name, evaluator in self.evaluators.items() if evaluator.render]:
            self._factory_of(name)().close()  # fails now, and not after an epoch, where nothing can be drawn

    def val_dataloader(self) -> list[Any]:
        """For each evaluator, its episodes."""
        return [Source(partial(self.evaluate, name)) for name in self.evaluators]

    def test_dataloader(self) -> list[Any]:
        """As for validation."""
        return self.val_dataloader()

    def teardown(self, stage: str) -> None:
        """End the environments."""
        self._close()

    def _close(self) -> None:
        self.engine.close()
        self._acting, self._has_begun = None, False

    def on_exception(self, exception: BaseException) -> None:
        """End the environments, since no teardown follows an exception."""
        self._close()

    # ---------------------------------------------------------------------------------------------- evaluation

    def _policy(self) -> Any:
        if self.trainer is None or self.trainer.lightning_module is None:
            raise RuntimeError("rollouts need a policy: use this data module in Trainer.fit or Trainer.validate")
        return self.trainer.lightning_module.policy

    def _vector(self, n_envs: int, evaluator: str | None = None, **options: Any) -> Callable[[], VectorEnv]:
        """What makes environments of training or of an evaluator."""
        kind = SubprocVectorEnv if self.vectorization == "subprocess" else SequentialVectorEnv
        return partial(kind, [self._factory_of(evaluator)] * n_envs, spec=self.spec, **options)

    def _make_actor(self) -> Callable[..., EnvironmentActor]:
        """What makes the engine's actors."""
        evaluation = {}
        for name, evaluator in self.evaluators.items():
            options = {"seed": derive_seed(self.seed, "evaluation", name), "autoreset": False, "seed_by_env": False}
            evaluation[name] = self._vector(len(evaluator.groups[0]), name, **options), evaluator.deterministic
        return partial(self._actor, self.seed, evaluation)

    def _engage(self, policy: Any) -> Any:
        """Have the engine ready to work with a policy as it is now.

        Returns:
            What actors need to be given to act with it, None if they have it.
        """
        if self._acting is None:
            self.engine.start(self._make_actor(), policy)
            self._acting, self._published = policy, {}
        if isinstance(self.engine, InProcessEngine) or policy is not self._acting or not isinstance(policy, nn.Module):
            return policy
        state, before = policy.state_dict().items(), self._published
        weights = {k: v.detach().to("cpu", copy=True) if isinstance(v, Tensor) else v for k, v in state}
        # What modules keep beside tensors may have changed in place, so that it always travels.
        same = (isinstance(value, Tensor) and value.equal(before[name]) for name, value in weights.items())
        if weights.keys() != before.keys() or not all(same):
            self._version, self._published = self._version + 1, weights
            self.engine.publish(weights, self._version)
        return None

    def _ask(self, jobs: list[tuple[int, str, tuple[Any, ...]]]) -> list[Any]:
        """What actors answer. If that fails, all is ended that is under way, since nobody will ask for it again."""
        try:
            return self.engine.map(jobs)
        except BaseException:
            self._close()
            raise

    def evaluate(self, name: str, policy: Policy | None = None, learned: dict[str, Any] | None = None) -> Evaluation:
        """Play the episodes of an evaluator, always the same ones; every rank plays its share of them.

        Args:
            name: Which evaluator.
            policy: Chooses the actions; that of the module in training if None.
            learned: What wrappers have learned, as `warm_start` takes it; what they know now if None.
        """
        learned = self._learned() if learned is None else learned
        given = self._engage(self._policy() if policy is None else policy)
        own = enumerate(self.evaluators[name].groups[self._rank :: self._world_size])
        jobs = [(place % self.engine.n_workers, "play", (name, group, learned, given)) for place, group in own]
        return Evaluation(name, list(chain.from_iterable(self._ask(jobs))))

    # -------------------------------------------------------------------------------------------------- state

    def _learned(self) -> dict[str, Any]:
        """What wrappers have learned, estimated by the first rank on first need; nothing where there are none."""
        if self._shared is None:
            states: dict[str, Any] = {}
            if self._rank == 0 and self._factory is not None:
                env = self._factory()
                env.estimate(self.n_normalization_samples, derive_seed(self.seed, "normalization"))
                states = shared_states_of(wrapper_stack(env))
                env.close()
            self._shared = gather_objects(states)[0]
            if self._shared:
                self._refuse_foreign_checkpoint()
        return self._shared

    def _refuse_foreign_checkpoint(self) -> None:
        """Lightning files a data module's state under the name of its class, and passes over one that is not there."""
        if self.trainer is not None and self.trainer.ckpt_path is not None and not self._has_loaded:
            fault = f"the checkpoint {self.trainer.ckpt_path} holds no state of a {type(self).__qualname__}"
            remedy = "resume with the class of data module that wrote it, or start anew from its weights: --warm-start"
            raise ValueError(f"{fault}; {remedy}")

    def state_dict(self) -> dict[str, Any]:
        """What wrappers have learned."""
        return {"shared": to_tensors(self._shared)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what `state_dict` gave."""
        self._shared = from_tensors(state_dict["shared"]) or None  # wrappers that are new estimate theirs
        self._has_loaded = True

    def warm_start(self, shared: dict[str, Any]) -> None:
        """Take over what the wrappers of another run have learned, without the state of its environments."""
        self._shared = shared or None

    def __getstate__(self) -> dict[str, Any]:
        """For processes that are spawned; factories of environments may be lambdas, and their wrappers be local."""
        return {**self.__dict__, **{name: cloudpickle.dumps(vars(self)[name]) for name in _BY_VALUE}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, **{name: cloudpickle.loads(state[name]) for name in _BY_VALUE})

    @property
    def _rank(self) -> int:
        return self.trainer.global_rank if self.trainer is not None else 0

    @property
    def _world_size(self) -> int:
        return self.trainer.world_size if self.trainer is not None else 1
