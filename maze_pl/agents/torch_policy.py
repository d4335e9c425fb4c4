"""The trained policy: networks, distributions and masks, from observations to actions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from maze_pl.agents.act_parts import log_prob_in_parts
from maze_pl.agents.acting import ActsOnObservations
from maze_pl.agents.gaussian_exploration import NoiseState
from maze_pl.agents.network_io import LATENT, evaluate_recurrent, networks_by_step
from maze_pl.agents.numpy_sampling import Sampling, numpy_views
from maze_pl.agents.policy_outputs import (
    PolicyOutput,
    checked_outputs,
    complete_outputs,
    network_inputs,
    network_of_each,
    sample,
    sample_with_noise,
    separate_outputs,
)
from maze_pl.agents.policy_step_parts import PolicyNetworks, PolicyStepParts, make_policy_step, separate_agent_counts
from maze_pl.agents.stacked_policy import StackedPolicy
from maze_pl.core.actor_id import StepKey
from maze_pl.core.batches import Rollout
from maze_pl.core.policy import Array, PolicyBatch, PolicyStep
from maze_pl.core.spaces import allowed_entries
from maze_pl.core.spec import Spec
from maze_pl.distributions.dict_probability_distribution import DictProbabilityDistribution
from maze_pl.distributions.distribution_mapper import DistributionMapperConfig, distribution_mappers
from maze_pl.distributions.probability_distribution import MaskableProbabilityDistribution as Maskable
from maze_pl.distributions.probability_distribution import ProbabilityDistribution, choice_sizes

Tensors = Mapping[str, Tensor]


class TorchPolicy(nn.Module, ActsOnObservations):
    """A stochastic policy with one network per sub-step, or one per agent of a sub-step.

    Networks take a dict of observations [B, ...] and return a dict of logits [B, L], one entry per
    action head. The caller sets training or evaluation mode.

    Networks may be recurrent (`state_shapes`): they take their state in addition to the
    observations and return the new state in addition to the logits. So does this class: wherever it
    takes observations of B actors, it also takes their state [B, ...], which is zero if it is
    missing. Observations [L * S, ...] with a state [S, ...] are L acts of S actors each, act by
    act, with the state before the first act.

    Distributions with a scale of exploration, such as `EpsilonGreedyProbabilityDistribution`, take it
    from `exploration`. It is part of the policy's state, so that checkpoints hold it, and workers
    get it with the weights.

    Args:
        networks: One network per sub-step, by key or in the spec's order; for sub-steps with
            separate agent networks, a list of networks in the order of the agents' ids.
        spec: Sub-steps with their observation and action spaces.
        distribution_mapper_config: Overrides of distributions, see `DistributionMapper`.
        substeps_with_separate_agent_nets: Sub-steps in which each agent has its own network.

    Attributes:
        exploration: Scale of exploration, [] float32; None if it was never set.

    Raises:
        ValueError: The networks do not fit the sub-steps and agents, networks of one sub-step have
            different states, or the number of agents of a sub-step with separate networks changes
            during an episode.
    """

    exploration: Tensor | None

    def __init__(
        self,
        networks: Sequence[PolicyNetworks] | Mapping[StepKey, PolicyNetworks],
        spec: Spec,
        distribution_mapper_config: DistributionMapperConfig | None = None,
        substeps_with_separate_agent_nets: Sequence[StepKey] = (),
    ) -> None:
        super().__init__()
        self.spec = spec
        separate = separate_agent_counts(spec, substeps_with_separate_agent_nets)
        mappers = distribution_mappers(spec, distribution_mapper_config)
        self._steps: dict[StepKey, PolicyStepParts] = {}
        for key, step_networks in networks_by_step(networks, spec.step_keys).items():
            self._steps[key] = make_policy_step(key, step_networks, separate.get(key), mappers[key])
        if any(mapper.explorations for mapper in mappers.values()):
            of_steps = [nn.ModuleList(step.explorations.values()) for step in self._steps.values()]
            self.explorations = nn.ModuleList(of_steps)
        # Any, as torch types the elements of a ModuleList as modules without an index
        self.networks: Any = nn.ModuleList(nn.ModuleList(step.networks) for step in self._steps.values())
        self.register_buffer("exploration", None)
        self._explores = False  # faster to read than a buffer

    def acting_policy(self) -> "TorchPolicy":
        """Return this policy, for `act_on`."""
        return self

    def stacked(self) -> StackedPolicy:
        """Return copies of this policy that act together, for populations.

        Raises:
            ValueError: They cannot, with the reason.
        """
        return StackedPolicy(self)

    def modules_of(self, step_key: StepKey) -> nn.ModuleList:
        """Return the networks of a sub-step, and the explorations of its heads that have parameters."""
        step = self.parts_of(step_key)
        explorations = [part for part in step.explorations.values() if part.options.type != "state_dependent"]
        return nn.ModuleList([*step.networks, *explorations])

    def parameters_of(self, step_key: StepKey) -> list[nn.Parameter]:
        """Return the parameters of a sub-step: those of its networks and explorations."""
        return list(self.modules_of(step_key).parameters())

    def deviations(self) -> dict[str, Tensor]:
        """Return the standard deviations that are parameters, "<step key>/<head>" -> any shape."""
        found = {}
        for key, step in self._steps.items():
            for head, exploration in step.explorations.items():
                if exploration.options.type != "state_dependent":
                    found[f"{key}/{head}"] = exploration.bounded_log_std().detach().exp()
        return found

    @property
    def device(self) -> torch.device:
        """Device of the networks."""
        return next(iter(self._steps.values())).inputs.device

    @property
    def acts_on_device(self) -> bool:
        """True if `distribution` suffices to act: there is no policy state, and no noise that outlasts an act."""
        return not any(step.state_shapes or step.has_gsde for step in self._steps.values())

    def distribution_classes(self, step_key: StepKey) -> dict[str, type[ProbabilityDistribution]]:
        """Head -> class of its distribution, for the heads of a sub-step."""
        return {head: distribution for head, (distribution, _) in self.parts_of(step_key).mapper.heads.items()}

    def set_exploration(self, scale: float) -> None:
        """Set the scale of exploration of distributions that have one.

        Args:
            scale: Epsilon, or the scale of noise; see the distribution.
        """
        if self.exploration is None:
            self.exploration = torch.tensor(float(scale), dtype=torch.float32, device=self.device)
            self._explores = True
        else:
            self.exploration.fill_(scale)

    def act(
        self,
        batch: PolicyBatch,
        *,
        deterministic: bool = False,
        temperature: float = 1.0,
        generator: torch.Generator | None = None,
        with_log_prob: bool = False,
    ) -> PolicyStep:
        """Choose one action for each actor of the batch, without recording gradients.

        Args:
            batch: The actors and their observations.
            deterministic: Take the most likely action instead of sampling.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.
            generator: Source of all randomness of this call, on any device.
            with_log_prob: Also return the log-probabilities; learners instead recompute them once
                for a whole rollout.

        Raises:
            MaskError: A mask holds anything but zeros and ones, or has the wrong shape.
            ValueError: The network returns NaN, or changes an observation in place.
        """
        step = self.parts_of(batch.step_key)
        exploration = float(self.exploration) if self._explores else 0.0  # type: ignore[arg-type]
        sampling = Sampling(deterministic, temperature, generator, exploration)
        allowed = {}
        for head, name, n_entries in step.masks:
            shape = (len(batch.agent_id), n_entries)
            allowed[head] = allowed_entries(batch.observation[name], shape, name, head)
        if step.plain is not None and not with_log_prob and not step.explorations:
            outputs = checked_outputs(step, batch.step_key, step.plain.logits(batch.observation), batch.observation)
            action = None if outputs is None else step.sampler.choose(outputs, allowed, sampling)
            if action is not None:
                return PolicyStep(action)
        observation = network_inputs(batch)  # not within inference mode, where changes in place are not counted
        return self._act_by_torch(batch, observation, allowed, sampling, with_log_prob)

    @torch.inference_mode()
    def _act_by_torch(
        self,
        batch: PolicyBatch,
        observation: Tensors,
        allowed: Mapping[str, Array],
        sampling: Sampling,
        with_log_prob: bool,
    ) -> PolicyStep:
        """Evaluate the networks by torch, and sample with NumPy where it can draw the same actions.

        Args:
            batch: The actors.
            observation: Name -> [B, ...], inputs of the networks.
            allowed: Head -> allowed options, for heads with masks.
            sampling: Options of sampling.
            with_log_prob: Also return the log-probabilities.
        """
        step = self.parts_of(batch.step_key)
        agent_id = network_of_each(batch, len(step.networks))
        of_networks = self._outputs(step, batch.step_key, observation, agent_id)
        features = of_networks.get(LATENT) if step.has_gsde else None
        logits = complete_outputs(step, of_networks, agent_id)
        checked_outputs(step, batch.step_key, logits, observation)
        policy_state = None
        if step.state_shapes:
            policy_state = {name: logits.pop(name).float().cpu().numpy() for name in step.state_shapes}
        noise = None
        if features is not None and batch.noise_state is not None and not sampling.deterministic:
            noise = NoiseState(batch.noise_state, len(batch.agent_id))
        arrays = None if with_log_prob or noise is not None else numpy_views(logits)
        chosen = None if arrays is None else step.sampler.choose(arrays, allowed, sampling)
        if chosen is not None:
            return PolicyStep(chosen, policy_state=policy_state)
        distribution = self._distribution(step, logits, observation, sampling.temperature)
        if noise is None or features is None:
            sampled = sample(distribution, sampling.deterministic, sampling.generator)
        else:
            sampled = sample_with_noise(step, distribution, features, agent_id, noise, sampling)
        log_prob = distribution.log_prob(sampled).cpu().numpy() if with_log_prob else None
        action = {head: value.cpu().numpy() for head, value in sampled.items()}
        return PolicyStep(action, log_prob, policy_state, None if noise is None else noise.after)

    @torch.inference_mode()
    def probabilities(self, batch: PolicyBatch, temperature: float = 1.0) -> dict[str, Any]:
        """Compute the probabilities of the options of discrete heads.

        Args:
            batch: The actors and their observations.
            temperature: Above 1 flattens the distributions, below 1 sharpens them.

        Returns:
            Head -> [B, n] for a Discrete space, a list of [B, n] for the choices of a MultiDiscrete
            space, [B, *shape] probabilities of a 1 for a MultiBinary space.
        """
        agent_id = network_of_each(batch, len(self.parts_of(batch.step_key).networks))
        joint = self.distribution(batch.step_key, network_inputs(batch), agent_id, temperature)
        found: dict[str, Any] = {}
        for head, distribution in joint.distributions.items():
            if not isinstance(distribution, Maskable):
                continue
            space = distribution.action_space
            # [B, options of all choices]
            probability = distribution.probabilities()[0].float().cpu().numpy()
            if isinstance(space, spaces.MultiBinary):
                found[head] = probability[:, 1::2].reshape(len(probability), *space.shape)
            elif isinstance(space, spaces.MultiDiscrete):
                found[head] = np.split(probability, np.cumsum(choice_sizes(space))[:-1], axis=1)
            else:
                found[head] = probability
        return found

    def action_logits(
        self, step_key: StepKey, observation: Tensors, agent_id: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The logits of all heads, before temperature and masks.

        These are the networks' outputs, completed by the parameters of explorations.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...].
            agent_id: [B] ids of the agents; required if agents have separate networks. Rows whose
                id does not belong to an agent, such as padding, get outputs of zero.

        Returns:
            Head -> [B, L], the auxiliary outputs, and the recurrent state after the actors' last act,
            by their names.
        """
        step = self.parts_of(step_key)
        return complete_outputs(step, self._outputs(step, step_key, observation, agent_id), agent_id)

    def _outputs(
        self, step: PolicyStepParts, step_key: StepKey, observation: Tensors, agent_id: Tensor | None
    ) -> dict[str, Tensor]:
        """The networks' outputs; arguments as for `action_logits`."""
        inputs = step.inputs(observation)
        if step.plain is not None:
            outputs = step.plain.outputs(inputs)
            logits: dict[str, Tensor] = step.networks[0](inputs) if outputs is None else outputs
            return logits
        if len(step.networks) == 1:
            return evaluate_recurrent(step.networks[0], inputs, step.state_shapes)
        if agent_id is None:
            refused = f"the agents of sub-step {step_key!r} have separate networks"
            raise ValueError(f"{refused}: agent_id is needed")
        agent_id = agent_id.to(step.inputs.device)
        if not step.state_shapes:
            return separate_outputs(step.networks, inputs, agent_id)
        chosen: dict[str, Tensor] = {}
        # each network runs on all rows, since sequences must stay whole
        for agent, network in enumerate(step.networks):
            for name, value in evaluate_recurrent(network, inputs, step.state_shapes).items():
                further_dimensions = [1] * (value.dim() - 1)
                is_agent = (agent_id[: len(value)] == agent).view(-1, *further_dimensions)
                others = chosen.get(name, torch.zeros_like(value))
                chosen[name] = torch.where(is_agent, value, others)
        return chosen

    def compute_policy_output(
        self,
        step_key: StepKey,
        observation: Tensors,
        agent_id: Tensor | None = None,
        temperature: float = 1.0,
    ) -> PolicyOutput:
        """Compute logits and distributions of one sub-step, with gradients.

        Arguments as for `action_logits`.
        """
        outputs = self.action_logits(step_key, observation, agent_id)
        step = self.parts_of(step_key)
        logits = {head: outputs[head] for head in step.mapper.heads}
        joint = self._distribution(step, logits, observation, temperature)
        auxiliary = {name: outputs[name] for name in step.auxiliary}
        return PolicyOutput(step_key, logits, joint, auxiliary)

    def distribution(
        self,
        step_key: StepKey,
        observation: Tensors,
        agent_id: Tensor | None = None,
        temperature: float = 1.0,
    ) -> DictProbabilityDistribution:
        """Compute the joint distribution of the actions of one sub-step, with gradients.

        Arguments as for `action_logits`.
        """
        output = self.compute_policy_output(step_key, observation, agent_id, temperature)
        return output.distribution

    def evaluate(
        self,
        step_key: StepKey,
        observation: Tensors,
        action: Tensors,
        agent_id: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probability of given actions, and the entropy, with gradients.

        Args:
            step_key: The sub-step.
            observation: Name -> [B, ...] observations of the actors.
            action: Head -> [B, ...] their actions.
            agent_id: [B] ids of the agents; required if agents have separate networks.

        Returns:
            Log-probability [B] of the whole action and entropy [B] of the joint distribution.
        """
        return self.distribution(step_key, observation, agent_id).log_prob_and_entropy(action)

    @torch.no_grad()
    def note_log_probs(self, rollout: Rollout) -> None:
        """Write this policy's log-probabilities of a rollout's actions into it; 0 without action.

        Called right after the rollout is collected, because the weights may have changed when it is
        learned from. As when acting, nothing is cast to the types of mixed precision.
        """
        for step_key, segment in rollout.segments.items():
            active = segment.active.flatten()  # [T * B]
            acts: Any = slice(None) if rollout.flat or rollout.dense else active.nonzero().squeeze(1)
            inputs = segment.observation | segment.policy_state
            observation = {name: rows.flatten(0, 1)[acts].to(self.device) for name, rows in inputs.items()}
            action = {name: rows.flatten(0, 1)[acts].to(self.device) for name, rows in segment.action.items()}
            agent_id = segment.agent_id.flatten()[acts]
            log_prob = torch.zeros(active.shape, device=active.device)
            with torch.autocast(self.device.type, enabled=False):
                found = log_prob_in_parts(self, step_key, observation, agent_id, action)
            log_prob[acts] = found.to(log_prob)
            segment.log_prob = log_prob.view_as(segment.active)

    def parts_of(self, step_key: StepKey) -> PolicyStepParts:
        """Return the networks, distributions and other parts of a sub-step."""
        if step_key not in self._steps:
            raise ValueError(f"unknown sub-step {step_key!r}; sub-steps: {list(self._steps)}")
        return self._steps[step_key]

    def _distribution(
        self, step: PolicyStepParts, logits: Tensors, observation: Tensors, temperature: float
    ) -> DictProbabilityDistribution:
        device = step.inputs.device
        masks = {head: observation[name].to(device) for head, name in step.mapper.masks.items()}
        joint = step.mapper.logits_dict_to_distribution(logits, temperature, masks)
        if self._explores:
            for part in joint.distributions.values():
                part.exploration = self.exploration  # type: ignore[assignment]
        return joint
