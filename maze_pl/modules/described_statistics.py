"""One-line descriptions of the statistics that algorithms record.

They are shown below the first table of a run and in dashboards. docs/diagnostics.md says for each
statistic which values are healthy, and what to do about others.
"""

from collections.abc import Mapping

DESCRIPTIONS: Mapping[str, str] = {
    "approx_kl": "KL divergence from the policy that acted to the policy after the updates on a rollout",
    "best_return": "mean return of the best episode from each start",
    "box_mean_abs_deviation": "mean distance of the policy's action from the demonstrated one, per component",
    "buffer_size": "transitions in the replay buffer",
    "c_clip_fraction": "share of acts whose importance weight exceeds c_bar = 1, which shortens the traces",
    "clip_fraction": "share of acts whose probability ratio is out of the clip range after the updates",
    "clip_range": "clip range of the probability ratio; follows a schedule",
    "critic_auxiliary_loss": "loss of the auxiliary outputs of the critic",
    "critic_grad_norm": "L2 norm of the critic's gradient before clipping",
    "critic_value": "mean value that the critic predicts",
    "critic_value_loss": "mean squared error of the critic",
    "discrete_accuracy": "share of demonstrated choices that the policy takes when it acts deterministically",
    "entropy_coef": "entropy coefficient alpha",
    "entropy_coef_loss": "loss of the entropy coefficient, 0 where the entropy is on target",
    "entropy_coef_lr": "learning rate of the entropy coefficients; follows a schedule",
    "entropy_surplus": "entropy of the policy minus its target",
    "epsilon": "probability of a random option while collecting; follows a schedule",
    "explained_variance": "share of the variance of returns that the critic predicts: 1 is perfect, 0 useless",
    "exploration_noise": "scale of the noise while collecting; follows a schedule",
    "gae_lambda": "lambda of the advantage estimates; follows a schedule",
    "huber_delta": "error beyond which the loss is linear; follows a schedule",
    "importance_weight": "mean probability of the acts under the policy, relative to the policy that acted",
    "l2_penalty": "weight of the squared norm of the parameters; follows a schedule",
    "lag": "updates between collecting and learning, averaged over rollouts",
    "lag_max": "largest number of updates between collecting and learning in a batch",
    "learning_rate": "learning rate of the optimiser",
    "multi_binary_accuracy": "share of demonstrated bits that the policy takes when it acts deterministically",
    "noise_stddev": "standard deviation of the perturbations; follows a schedule",
    "n_rollouts": "episodes that were played for an update",
    "n_timesteps": "env steps that were played for an update",
    "open_acts": "share of acts that are left out because nothing follows them in the rollout",
    "policy_auxiliary_loss": "loss of the auxiliary outputs of the policy",
    "policy_entropy": "entropy of the policy in nats: high for random actions, falls as the policy becomes decisive",
    "policy_grad_norm": "L2 norm of the policy's gradient before clipping",
    "policy_kl": "KL divergence from the policy that acted, averaged over updates; limited by target_kl",
    "policy_l2_norm": "L2 norm of the policy's parameters",
    "policy_loss": "loss of the policy, without coefficients",
    "policy_loss_coef": "weight of the policy's loss; follows a schedule",
    "policy_norm": "L2 norm of the policy's parameters",
    "policy_std": "mean of the standard deviations that are parameters of a Gaussian policy",
    "priority_alpha": "exponent of priorities; follows a schedule",
    "priority_beta": "exponent of importance weights; follows a schedule",
    "prob_true_act": "mean probability of the demonstrated action under the policy",
    "q_value": "mean value of the acts in a minibatch",
    "queue_fill": "share of the queue that is filled when a batch is requested",
    "return_mean": "mean return of the perturbed policies",
    "return_std": "standard deviation of the returns of the perturbed policies",
    "rho": "mean importance weight after clipping at rho_bar",
    "rho_clip_fraction": "share of acts whose importance weight exceeds rho_bar",
    "target_kl": "KL divergence that ends the passes over a rollout; follows a schedule",
    "target_noise": "scale of the noise on target actions; follows a schedule",
    "target_noise_clip": "limit of the noise on target actions; follows a schedule",
    "td_error": "mean size of the TD error",
    "target_entropy": "entropy towards which the entropy coefficient is adapted",
    "target_entropy_multiplier": "multiplier of the target entropies; follows a schedule",
    "tau": "fraction by which target networks move; follows a schedule",
    "time_epoch": "seconds of the whole epoch, without an evaluation after its last batch",
    "time_rollout": "seconds to get a batch, averaged over batches",
    "time_update": "seconds to learn from a batch, averaged over batches",
    "update_ratio": "L2 norm of an update relative to that of the parameters",
    "value_clip_range": "limit of the change of values; follows a schedule",
    "value_loss": "loss of the estimated values",
    "value_loss_coef": "weight of the critic's loss; follows a schedule",
    "vtrace_clip_pg_rho_threshold": "rho_bar of the advantages; follows a schedule",
    "vtrace_clip_rho_threshold": "rho_bar of the value targets; follows a schedule",
}
"""Name of the statistic -> description."""


def descriptions_of(topic: str, additional: Mapping[str, str]) -> dict[str, str]:
    """Return the descriptions of an algorithm's statistics by the names under which they are logged.

    Args:
        topic: Section of the logs of the algorithm.
        additional: Descriptions that the algorithm adds or replaces.

    Returns:
        "<topic>/<name>" -> description.
    """
    return {f"{topic}/{name}": text for name, text in {**DESCRIPTIONS, **additional}.items()}
