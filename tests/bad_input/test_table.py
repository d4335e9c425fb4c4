"""What the user can get wrong, each ending in one message that says it; nothing but a log of it is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from maze_pl.__main__ import main
from tests.bad_input.project import FIT, require_only_evidence, tree

pytestmark = pytest.mark.filterwarnings("ignore")  # as on a command line, where warnings end nothing

POLICY_NETS = "--model.networks.init_args.policy.init_args.networks"
CRITIC_NETS = "--model.networks.init_args.critic.init_args.networks"
MEMORY = ["fit", "--config", "ppo_cartpole_recurrent", "--run_dir", "new"]
ES = ["fit", "--config", "es_cartpole", "--trainer.max_epochs", "1", "--run_dir", "new"]
MASKED = ["--data.action_masks", '{"action": "mask"}']
RESUME = ["fit", "--resume", "run", "--trainer.max_epochs", "2"]
WARM = ["fit", "--warm-start", "run", "--run_dir", "new"]


def node(class_path: str, **init_args: object) -> str:
    return str([{"class_path": class_path, "init_args": init_args}])


NAMES: list[tuple[list[str], list[str]]] = [
    (["fitt"], ["unknown command 'fitt'", "did you mean fit"]),
    (["--foo"], ["'--foo'"]),
    (["fit"], ["use --config NAME"]),
    (["rollout"], ["use --env", "RUN_DIR"]),
    (["check"], ["use --env", "RUN_DIR"]),
    (["fit", "CartPole-v1"], ["did you mean", "--data.env.name CartPole-v1"]),
    (["fit", "ppo_cartpole"], ["did you mean --config ppo_cartpole?"]),
    ([*FIT, "--model.learning_rate", "1"], ["'learning_rate'", "did you mean lr?"]),
    ([*FIT, "--learning_rate", "1"], ["learning_rate", "did you mean --model.lr?"]),
    ([*FIT, "--data.num_envs", "1"], ["'num_envs'", "did you mean n_envs?"]),
    (["fit", "--config", "ppo_cartpol"], ["'ppo_cartpol'", "did you mean ppo_cartpole"]),
    (["fit", "--config", "nowhere.yaml"], ["there is no configuration 'nowhere.yaml'"]),
    (["fit", "--config"], ["--config", "needs a value"]),
    ([*FIT, "--model", "algorithm/ppoo"], ["'algorithm/ppoo'", "did you mean algorithm/ppo"]),
    ([*FIT, "--model.lrr", "1"], ["'lrr'", "maze_pl.modules.PPO", "did you mean lr"]),
    ([*FIT, "--model.networks.polisy", "null"], ["'polisy'", "did you mean policy"]),
    ([*FIT, "--data.n_env", "1"], ["'n_env'", "did you mean n_envs"]),
    ([*FIT, "--data.env.nam", "x"], ["'nam'", "did you mean name"]),
    ([*FIT, "--trainer.max_epoch", "1"], ["trainer.max_epoch=1", "did you mean --trainer.max_epochs"]),
    ([*FIT, "--early_stoping.patience", "1"], ["early_stoping.patience", "did you mean --early_stopping.patience"]),
    ([*FIT, "--data.evaluators", '{"eval": {"n_episode": 1}}'], ["'n_episode'", "did you mean n_episodes"]),
    ([*FIT, "--model", "PPP"], ["got PPP", "did you mean maze_pl.modules.PPO"]),
    ([*FIT, "--model", "maze_pl.modules.PPPO"], ["has no attribute 'PPPO'", "did you mean maze_pl.modules.PPO"]),
    ([*FIT, "--model", "maze_pl.module.PPO"], ["maze_pl.module", "did you mean maze_pl.modules.PPO"]),
    ([*FIT, "--model", "torch.nn.Linear"], ["torch.nn.Linear", "subclass of LightningModule"]),
    ([*FIT, "--model", "os.system"], ["os.system", "subclass of LightningModule"]),
    ([*FIT, "--data.env", "os.system"], ["os.system", "function that returns"]),
    ([*FIT, "--data.env", "Pendulum-v1"], ["use env/gym_env with its option `name`: Pendulum-v1"]),
    ([*FIT, "--data.env", "gymnasium.make"], ["gymnasium.make", "arguments are required: id"]),
    (
        [*FIT, "--data.wrappers", node("maze_pl.envs.wrappers.TimeLimitWraper")],
        ["did you mean maze_pl.envs.wrappers.TimeLimitWrapper"],
    ),
    ([*FIT, "--data.wrappers", node("maze_pl.envs.wrappers.TimeLimitWrapper")], ["required: max_episode_steps"]),
    ([*FIT, "--trainer.callbacks", "EarlyStoping"], ["got EarlyStoping", "EarlyStopping"]),
    ([*FIT, "--data.env.name", "CartPol-v1"], ["CartPol", "CartPole"]),
    ([*FIT, "--data.env.name", "CartPole-v9"], ["CartPole-v9", "`v1`"]),
    ([*FIT, "--data.env.name", "phys2d/Pendulum-v0"], ["package that is not installed", "jax"]),
    ([*FIT, "--data.env.name", "ALE/Pong-v5"], ["ALE"]),
    ([*FIT, "--data.env.gravity", "3"], ["'gravity'", "make_gym_maze_env"]),
    ([*FIT, "stray"], ["unrecognized arguments: stray"]),
    ([*FIT, "--model.lr"], ["--model.lr needs a value"]),
]

VALUES: list[tuple[list[str], list[str]]] = [
    ([*FIT, "--model.lr", "fast"], ["model.lr", "expected a number, or a schedule", "fast"]),
    ([*FIT, "--model.lr", "-1"], ["lr=-1.0 must be greater than 0"]),
    ([*FIT, "--model.lr", "nan"], ["lr", "nan"]),
    ([*FIT, "--model.lr", "1e999"], ["lr", "inf"]),
    ([*FIT, "--model.gamma", "1.7"], ["gamma=1.7 must lie between 0 and 1"]),
    ([*FIT, "--model.gae_lambda", "-0.1"], ["gae_lambda=-0.1"]),
    ([*FIT, "--model.clip_range", "0"], ["clip_range=0.0 must be greater than 0"]),
    ([*FIT, "--model.batch_size", "48"], ["batch_size=48 does not divide", "100", "25 or 50"]),
    ([*FIT, "--model.batch_size", "0"], ["batch_size=0 must be at least 1"]),
    ([*FIT, "--model.capture", "maybe"], ["model.capture", "'auto', 'off'", "maybe"]),
    ([*FIT, "--model.networks", "automatic"], ["model.networks", "automatic"]),
    ([*FIT, "--data.n_envs", "-1"], ["n_envs=-1 must be at least"]),
    ([*FIT, "--data.n_envs", "two"], ["data.n_envs", "expected int", "two"]),
    (
        ["rollout", "--env", "env/gym_env", "--trajectories", "[spaces, states]"],
        ["trajectories: expected one of 'states', 'spaces', 'both', 'none'. Got value: ['spaces', 'states']"],
    ),
    ([*FIT, "--data.n_rollout_steps", "0"], ["n_rollout_steps=0 must be at least 1"]),
    ([*FIT, "--data.n_rollout_steps", "2000000000"], ["memory"]),
    ([*FIT, "--data.n_rollout_steps", "10000000000000"], ["must be at most 2147483647"]),
    ([*FIT, "--data.n_envs", "100000000"], ["n_envs=100000000", "GiB", "use fewer"]),
    ([*FIT, "--data.n_envs", "null"], ["data.n_envs: expected int, got null"]),
    ([*FIT, "--model.lr", "null"], ["model.lr: expected a number or a schedule, got null"]),
    ([*FIT, "--model.clip_range", "null"], ["model.clip_range: expected a number or a schedule, got null"]),
    ([*FIT, "--data.evaluators", '{"eval": {"n_episodes": 1000000000000000000000000}}'], ["at most 1000000"]),
    ([*FIT, "--data.evaluators", '{5: {"class_path": "maze_pl.datamodules.RolloutEvaluator"}}'], ["'5' in quotes"]),
    ([*FIT[:-2], "--experiment", "../../x"], ["experiment='../../x'", "--run_dir ../../x"]),
    (["rollout", "--env", "broken_environments.Sound", "--policy", "random", "--n_episodes", "9" * 30], ["at most"]),
    ([*FIT, "--data.env.nme", "CartPole-v1"], ["'nme' is not accepted", "did you mean name?"]),
    ([*FIT, "--data.env.render_mode", "human"], ["further options go to data.env.dict_kwargs.render_mode"]),
    ([*FIT, "--data.epoch_length", "0"], ["epoch_length=0 must be at least 1"]),
    ([*FIT, "--data.vectorization", "threads"], ["'sequential', 'subprocess', 'native'", "threads"]),
    ([*FIT, "--data.evaluators", "3"], ["data.evaluators", "expected dict", "3"]),
    ([*FIT, "--data.evaluators", '{"eval": {"n_episodes": 0}}'], ["n_episodes=0"]),
    ([*FIT, "--data.evaluators", '{"train": {}}'], ["'train'"]),
    ([*FIT, "--data.evaluators", '{"evil": {}}'], ["eval/return", "'evil'", "data.evaluators"]),
    ([*FIT, "--best_checkpoint.monitor", "evil/return"], ["evil/return", "did you mean eval"]),
    ([*FIT, "--best_checkpoint.mode", "most"], ["most"]),
    ([*FIT, "--early_stopping.patience", "-1"], ["patience=-1"]),
    ([*FIT, "--last_checkpoint.every_n_epochs", "0"], ["every_n_epochs=0 must be at least 1"]),
    ([*FIT, "--stop_at_return.threshold", "x"], ["stop_at_return.threshold", "expected float", "x"]),
    ([*FIT, "--trainer.max_epochs", "-5"], ["max_epochs", "-5"]),
    ([*FIT, "--trainer.max_epochs", "x"], ["trainer.max_epochs", "expected int", "x"]),
    ([*FIT, "--trainer.accelerator", "gpus"], ["gpus", "Available names"]),
    ([*FIT, "--trainer.accelerator", "tpu"], ["torch_xla"]),
    ([*FIT, "--trainer.devices", "0"], ["devices", "0"]),
    ([*FIT, "--trainer.devices", "x"], ["devices", "should be an int > 0"]),
    ([*FIT, "--trainer.num_nodes", "0"], ["num_nodes", "0"]),
    ([*FIT, "--trainer.strategy", "foo"], ["strategy", "foo"]),
    ([*FIT, "--trainer.precision", "99"], ["trainer.precision", "got 99"]),
    ([*FIT, "--trainer.check_val_every_n_epoch", "0"], ["check_val_every_n_epoch=0"]),
    ([*FIT, "--trainer.val_check_interval", "7"], ["val_check_interval", "7"]),
    (
        [*FIT, "--trainer.val_check_interval", "00:00:00:01", "--trainer.devices", "2"],
        ["val_check_interval is a time (1 s)", "not supported with 2 ranks", "use a number of batches"],
    ),
    ([*FIT, "--trainer.gradient_clip_val", "1"], ["gradient_clip_val=1"]),
    ([*FIT, "--trainer.limit_train_batches", "-1"], ["limit_train_batches", "-1"]),
    ([*FIT, "--seed_everything", "-1"], ["-1"]),
    ([*FIT, POLICY_NETS, "[]"], ["got 0 networks for the 1 sub-steps"]),
    ([*FIT, POLICY_NETS, "[torch.nn.Linear]"], ["in_features"]),
    ([*FIT, POLICY_NETS, "[broken_environments.WrongNames]"], ["['actions']", "['action']"]),
    ([*FIT, POLICY_NETS, node("maze_pl.perception.FlattenConcatPolicyNet", hidden_units=[-3])], ["hidden_units", "-3"]),
    ([*FIT, POLICY_NETS, node("maze_pl.perception.FlattenConcatPolicyNet", non_lin="torch.nn.Tan")], ["torch.nn.Tan"]),
    ([*FIT, POLICY_NETS, node("maze_pl.perception.FlattenConcatPolicyNet", non_lin="os.system")], ["os.system"]),
]

ENVIRONMENTS: list[tuple[list[str], list[str]]] = [
    ([*FIT, "--data.env", f"broken_environments.{name}", *more], parts)
    for name, more, parts in [
        ("OldReset", [], ["environment 0", "reset of OldReset", "(observation, info"]),
        ("OldStep", [], ["environment 0", "step of OldStep", "4 values", "truncated"]),
        ("NoObservation", [], ["reset of NoObservation", "None"]),
        ("WrongShape", [], ["reset of WrongShape", "(4,)", "(3,)"]),
        ("LaterWrongShape", [], ["step of LaterWrongShape", "(4,)", "(3,)"]),
        ("MissingPart", [], ["reset of MissingPart", "'speed'"]),
        ("NotANumber", [], ["'observation' of environment 0", "not finite", "step 3"]),
        ("NotANumber", ["--data.vectorization", "subprocess"], ["'observation' of environment 0", "step 3"]),
        ("OldStep", ["--data.vectorization", "subprocess"], ["step of OldStep", "4 values"]),
        ("InfiniteReward", [], ["reward of environment 0", "not finite", "step 3"]),
        ("RewardNotANumber", [], ["reward of environment 0", "not finite", "step 0"]),
        ("NoReward", [], ["step of NoReward", "None"]),
        ("TerminatedText", [], ["step of TerminatedText", "terminated='no'"]),
        ("NoSpace", [], ["NoSpace", "observation_space"]),
        ("TextAction", [], ["action space", "Text", "not supported"]),
        ("SequenceAction", [], ["action space", "Sequence", "not supported"]),
        ("GraphObservation", [], ["observation space", "Graph", "not supported"]),
        ("AllForbidden", MASKED, ["'mask' of environment 0", "allows no action", "'action'", "step 3"]),
        ("Sound", ["--data.action_masks", '{"action": "observation"}'], ["'observation'", "(3,)", "(2,)"]),
        ("Sound", MASKED, ["'action'", "does not exist"]),
        ("SameNames", [], ["observation space", "the same name", "a/b"]),
        ("converted_out_of_bounds", [], ["'position'", "by Converted holds 7.0", "-1.0 to 1.0"]),
        ("converted_fraction", [], ["'goal'", "by Converted has type float64", "int64"]),
        ("converted_shape", [], ["'position'", "by Converted has shape (1,)", "(3,)"]),
        ("converted_more", [], ["by Converted is a dict with ['goal', 'position', 'speed']", "['goal', 'position']"]),
        ("actor_of_another_sub_step", [], ["actor_id() names sub-step 'cut'; declared are [0]"]),
        ("make_nothing", [], ["None"]),
        (
            "make_text",
            [],
            ["the environment factory returned 'environment' of type str", "return a gymnasium.Env"],
        ),
        ("Missing", [], ["Missing"]),
    ]
] + [
    (
        [*ES, "--data.env", "broken_environments.AllForbidden", *MASKED],
        ["'mask' of environment 0", "allows no action", "'action'", "step 3 of an episode"],
    ),
    (
        [*FIT, POLICY_NETS, "[broken_environments.PolicyNetNotANumber]"],
        ["PolicyNetNotANumber, returned NaN", "'action'"],
    ),
    ([*FIT, CRITIC_NETS, "[broken_environments.CriticNotANumber]"], ["NaN", "critic_value_loss", "env step 100"]),
]

OURS = "maze_pl.envs.wrappers"
STACK = {"observation": "observation", "stack_steps": 2}
WRAPPERS: list[tuple[list[str], list[str]]] = [
    ([*FIT, "--data.wrappers", wrappers], parts)
    for wrappers, parts in [
        (node("gymnasium.wrappers.TimeLimit", max_episode_steps=3), ["gymnasium.wrappers.TimeLimit", "not a Wrapper"]),
        (node("maze_pl.envs.make_gym_maze_env", name="CartPole-v1"), ["make_gym_maze_env", "not a Wrapper of maze_pl"]),
        (node("torch.nn.Linear", out_features=3), ["torch.nn.Linear", "subclass of Env or ArrayEnv"]),
        (node(f"{OURS}.NoDictSpacesWrapper"), ["NoDictSpacesWrapper", "must be a Dict space, not Box"]),
        (node(f"{OURS}.DictActionWrapper"), ["DictActionWrapper", "entry 'action' of type Dict"]),
        (
            node(f"{OURS}.ObservationStackWrapper", stack_config=[{**STACK, "keep_original": True}]),
            ["stack_config", "two observations 'observation'"],
        ),
        (node(f"{OURS}.ObservationStackWrapper", stack_config=[{**STACK, "step": 2}]), ["StackConfig", "'step'"]),
        (
            node(f"{OURS}.DiscretizeActionsWrapper", discretization_config={"action": {"num_bins": 2}}),
            ["DiscretizeActionsWrapper", "'action' is Discrete(2)"],
        ),
        (
            node(f"{OURS}.SplitActionsWrapper", split_config={"actoin": {"a": {"indices": [0]}}}),
            ["SplitActionsWrapper", "['actoin']", "not among ['action']"],
        ),
        (
            node(f"{OURS}.RandomResetWrapper", min_skip_steps=500, max_skip_steps=500),
            ["RandomResetWrapper", "ended within the first 500", "100 attempts"],
        ),
        (node(f"{OURS}.StepSkipWrapper", n_steps=2, skip_mode="noop"), ["GymActionConversion", "noop_action"]),
        (node(f"{OURS}.StepSkipWrapper", n_steps=2, skip_mode="stop"), ["skip_mode", "'sticky', 'noop'", "stop"]),
    ]
]

FILES: list[tuple[list[str], list[str]]] = [
    *(
        [[*FIT, "--config", f"{name}"], [name, *parts]]
        for name, parts in [  # type: ignore[list-item]
            ("tabs.yaml", ["cannot be read", "line 2"]),
            ("twice.yaml", ["'max_epochs'", "twice"]),
            ("list.yaml", ["contains a list"]),
            ("empty.yaml", ["is empty"]),
            ("binary.yaml", ["cannot be read"]),
            ("folder.yaml", ["there is no configuration"]),
            ("code.yaml", ["cannot be read", "os.system"]),
            ("documents.yaml", ["another document"]),
            ("brackets.json", ["cannot be read"]),
            ("aliases.yaml", ["cannot be read", "aliases expand to more than 1,000,000 values"]),
        ]
    ),
    ([*FIT, "--config", "itself.yaml"], ["refers to itself"]),
    ([*FIT, "--config", "deep.yaml"], ["deep.yaml cannot be read", "nesting depth"]),
    ([*FIT, "--config", "number.yaml"], ["model", "got 3"]),
    ([*FIT, "--config", "section.yaml"], ["section.yaml: there is no option 'modle'", "did you mean model"]),
    ([*FIT, "--config", "option.yaml"], ["'trainer.max_epoch'", "did you mean trainer.max_epochs"]),
    ([*FIT, "--config", "null.yaml"], ["trainer: null"]),
    ([*FIT, "--config", "{"], ["config"]),
    ([*FIT[:-1], "file"], ["run directory file cannot be written"]),
    ([*FIT[:-1], "file/below"], ["run directory file/below cannot be written", "Not a directory"]),
    ([*FIT[:-1], "run"], ["run directory run is not empty", "--resume run"]),
    ([*FIT[:-1], "full"], ["run directory full is not empty"]),
    ([*FIT, "--best_checkpoint.dirpath", "file/below"], ["file/below", "Not a directory"]),
    ([*FIT, "--trainer.default_root_dir", "file"], ["file"]),
]

TEMPLATE = [*FIT, "--model.networks", "model/vector_obs"]
BUILDER = "--model.networks.model_builder"
MAPPED = f"{BUILDER}.observation_modality_mapping"
FEATURE = f"{BUILDER}.modality_config.feature"
DENSE = {"block_type": "maze_pl.perception.DenseBlock", "block_params": {"hidden_units": [8]}}
VGG = {"block_type": "maze_pl.perception.VGGConvolutionDenseBlock", "block_params": {}}
NETWORKS: list[tuple[list[str], list[str]]] = [
    ([*TEMPLATE, MAPPED, "{observation: image}"], ["'observation'", "the modality 'image'", "'feature'"]),
    ([*TEMPLATE, MAPPED, "{}"], ["observations ['observation'] of sub-step 0", "observation_modality_mapping lacks"]),
    ([*TEMPLATE, MAPPED, "{observation: feature, screen: feature}"], ["['screen']", "'observation'"]),
    ([*TEMPLATE, FEATURE, "{block_type: maze_pl.perception.DenseBlok}"], ["maze_pl.perception.DenseBlok"]),
    ([*TEMPLATE, FEATURE, "{block_type: torch.nn.Linear}"], ["'feature' needs block_type, a PerceptionBlock"]),
    (
        [*TEMPLATE, f"{BUILDER}.modality_config.hiden", "{block_type: maze_pl.perception.DenseBlock}"],
        ["modality_config has ['hiden'], which nothing uses", "'hidden'"],
    ),
    ([*TEMPLATE, FEATURE, "DenseBlock"], ["modality_config", "DenseBlock"]),
    (
        [*TEMPLATE, FEATURE, str(DENSE | {"block_params": {"hidden_unit": [3]}})],
        ["sub-step 0", "'feature'", "'hidden_unit'"],
    ),
    (
        [*TEMPLATE, FEATURE, str(DENSE | {"block_params": {"hidden_units": ["a"]}})],
        ["'feature' cannot be made", "not ['a']"],
    ),
    ([*TEMPLATE, FEATURE, str(VGG)], ["'feature' cannot be made for 'observation' of shape (4,)", "VGG"]),
    (
        [
            *TEMPLATE,
            f"{BUILDER}.modality_config.recurrence",
            str(DENSE | {"block_type": "maze_pl.perception.LSTMBlock"}),
        ],
        ["'recurrence' cannot be made for 'concat' of shape (32,)"],
    ),
    ([*TEMPLATE, f"{BUILDER}.shared_embedding_keys", "[latnt]"], ["there is no ['latnt']", "'latent'"]),
    ([*MEMORY, "--model.networks.critic", "maze_pl.perception.DeltaStateCriticComposer"], ["a delta critic cannot"]),
    ([*MEMORY, "--model.sequence_length", "0"], ["sequence_length=0 must be at least 1"]),
    (
        [*TEMPLATE, "--model.networks.policy.networks", "[maze_pl.perception.FlattenConcatPolicyNet]"],
        ["its policy names some", "networks: null"],
    ),
    ([*FIT, "--config", "unnamed.yaml"], ["networks are needed", "TemplateModelComposer"]),
    (
        [*TEMPLATE, "--model.networks.critic.networks", "[maze_pl.perception.FlattenConcatSharedStateValueNet]"],
        ["shared critic network", "InferenceBlock", "FlattenConcatPolicyNet"],
    ),
    *(
        [[*FIT, POLICY_NETS, f"[broken_environments.{name}]"], ["policy network of sub-step 0", *parts]]
        for name, parts in [  # type: ignore[list-item]
            ("BlocksInACycle", ["in a cycle", "'first' reads ['second'] and writes ['first']"]),
            ("BlocksWriteOneKey", ["the key 'action' is written by the blocks ['first', 'second']"]),
            ("BlocksCannotBeJoined", ["ConcatenationBlock from 'observation' (4,), 'square' (2, 2)"]),
            ("BlocksDoNotFit", ["block 'head' (LinearOutputBlock) expects 'observation' of shape (5,)", "(4,)"]),
            ("WrongLogits", ["(WrongLogits)", "output 'action'", "(2, 3)", "expected (2, 2)"]),
            ("FailsWhenMade", ["cannot be made with obs_shapes, action_logits_shapes", "KeyError: 'picture'"]),
            (
                "FailsWhenRun",
                ["(FailsWhenRun): forward failed", "{'observation': 'float32 (2, 4)'}", "KeyError: 'picture'"],
            ),
        ]
    ),
]

MAPPER = "--model.networks.init_args.distribution_mapper_config"
BETA = "maze_pl.distributions.BetaProbabilityDistribution"
SQUASHED = "maze_pl.distributions.squashed_gaussian_probability_distribution.SquashedGaussianProbabilityDistribution"
DISTRIBUTIONS: list[tuple[list[str], list[str]]] = [
    ([*FIT, *more, MAPPER, str([{"action_head": "action", "distribution": kind, **others}])], parts)
    for more, kind, others, parts in [
        ([], BETA, {}, ["action head 'action'", "Discrete(2)", "BetaProbabilityDistribution needs a Box of floats"]),
        (
            ["--data.env", "broken_environments.UnboundedAction"],
            SQUASHED,
            {},
            ["action head 'action'", "Box(-inf, inf, (2,), float32)", "finite bounds", "DiagonalGaussian"],
        ),
        ([], "maze_pl.distributions.Beta", {}, ["distribution: cannot import 'maze_pl.distributions.Beta'"]),
        ([], "torch.nn.Linear", {}, ["'torch.nn.Linear' is not a subclass of ProbabilityDistribution"]),
        ([], BETA, {"action_space": "gymnasium.spaces.Box"}, ["needs `distribution` and `action_space` or"]),
        ([], BETA, {"action_head": "actoin"}, ["unknown action_head 'actoin'", "['action']"]),
    ]
]

RUNS: list[tuple[list[str], list[str]]] = [
    (["validate"], ["use the RUN_DIR"]),
    (["validate", "nowhere"], ["nowhere is not a run directory"]),
    (["validate", "full"], ["full is not a run directory"]),
    (["fit", "--resume", "file"], ["file is not a run directory"]),
    (["fit", "--resume"], ["--resume", "needs a value"]),
    (["fit", "--resume", "run", "--warm-start", "run"], ["--resume", "--warm-start"]),
    (["fit", "--resume", "run", "--run_dir", "new"], ["--resume", "--run_dir"]),
    *(
        [["validate", "run", "--ckpt_path", f"{name}.ckpt"], [f"{name}.ckpt", *parts]]
        for name, parts in [  # type: ignore[list-item]
            ("nowhere", ["there is no checkpoint"]),
            ("text", ["was not written by maze_pl"]),
            ("pickle", ["was not written by maze_pl"]),
            ("truncated", ["is truncated"]),
            ("code", ["more than tensors and plain values"]),
            ("list", ["was not written by maze_pl"]),
            ("foreign", ["was not written by maze_pl"]),
            ("newer", ["has format 99 (maze_pl 9.9)", "reads format 4"]),
            ("older", ["has format 3 (maze_pl 0.0.1)", "reads format 4"]),
        ]
    ),
    (["validate", "flipped"], ["flipped/checkpoints/best.ckpt is damaged", "checksum", "restore it"]),
    (["fit", "--resume", "flipped"], ["flipped/checkpoints/last.ckpt is damaged", "checksum", "restore it"]),
    (["fit", "--warm-start", "flipped", "--run_dir", "new"], ["flipped/checkpoints/best.ckpt is damaged", "checksum"]),
    (["rollout", "flipped"], ["flipped/checkpoints/best.ckpt is damaged", "checksum"]),
    ([*RESUME, "--ckpt_path", "truncated.ckpt"], ["is truncated"]),
    ([*RESUME, "--ckpt_path", "foreign.ckpt"], ["was not written by maze_pl"]),
    ([*RESUME, "--ckpt_path", "older.ckpt"], ["has format 3 (maze_pl 0.0.1)", "reads format 4"]),
    ([*RESUME, "--data.env.name", "Acrobot-v1"], ["other spaces", "'observation'", "[4]", "[6]"]),
    ([*RESUME, "--model.networks", "model/flatten_concat"], ["the networks of", "do not fit", "(64, 4)", "(256, 4)"]),
    ([*RESUME, "--model.gamma", "7"], ["gamma=7.0"]),
    (["validate", "run", "--data.env.name", "Acrobot-v1"], ["other spaces", "'observation'", "[4]", "[6]"]),
    (["validate", "run", "--model.networks", "model/flatten_concat"], ["do not fit"]),
    ([*WARM, "--data.env.name", "Acrobot-v1"], ["the networks of run do not fit"]),
    ([*WARM, "--model.networks", "model/flatten_concat"], ["the networks of run do not fit"]),
    (["fit", "--warm-start", "full", "--run_dir", "new"], ["full is not a run directory"]),
]

EPISODES: list[tuple[list[str], list[str]]] = [
    (
        [*("fit", "--config", "bc_lunar_lander", "--data.env.name", "CartPole-v1", "--run_dir", "new"), *more],
        parts,
    )
    for more, parts in [
        (["--data.dataset.input_data", "nowhere"], ["no file or folder nowhere with recorded episodes"]),
        (["--data.dataset.input_data", "full"], ["the folder full holds no recorded episodes"]),
        (["--data.dataset.input_data", "nothing.spaces"], ["nothing.spaces", "is empty", "on_damaged=skip"]),
        (["--data.dataset.input_data", "cut"], ["cut/cut.spaces", "is cut short", "on_damaged=skip"]),
        (["--data.dataset.input_data", "pickle.ckpt"], ["pickle.ckpt", "maze_pl spaces format 1"]),
        (["--data.dataset.input_data", "states"], ["reading states/", "runs whatever code it holds", "trust=True"]),
        (
            ["--data.dataset.input_data", "episodes", "--data.env.name", "Acrobot-v1"],
            ["episodes/", "does not fit", "'observation' of sub-step 0", "the environment's is Box", "(6,)"],
        ),
        (["--data.validation_percentage", "100"], ["validation_percentage=100", "below 100"]),
    ]
]

TABLE = [*NAMES, *VALUES, *ENVIRONMENTS, *WRAPPERS, *FILES, *NETWORKS, *DISTRIBUTIONS, *EPISODES, *RUNS]
FAST, SLOW = 10, 3
"""One of so many rows is a fast test, one of so many others a slow one; the rest are left to the long tests."""


def parameters() -> Iterator[Any]:
    for index, row in enumerate(TABLE):
        marks = [] if index % FAST == 0 else [pytest.mark.slow]
        if marks and index % SLOW:
            marks.append(pytest.mark.long)
        yield pytest.param(*row, id=" ".join(row[0][-2:])[-60:], marks=marks)


@pytest.mark.parametrize(("arguments", "parts"), list(parameters()))
def test_impossible_commands_give_one_message_and_leave_nothing_but_a_log(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], parts: list[str]
) -> None:
    before = tree(project)
    status = main(arguments)
    error = capsys.readouterr().err
    assert status == 2, error
    assert "Traceback" not in error
    assert error.count("maze-pl: error: ") == 1
    message = error.partition("maze-pl: error: ")[2]
    for part in parts:
        assert part in message
    assert len(message.splitlines()) <= 12
    assert "Namespace(" not in message
    require_only_evidence(before, project)


def test_the_table_is_long() -> None:
    assert len({str(row) for row in TABLE}) == len(TABLE) >= 60
