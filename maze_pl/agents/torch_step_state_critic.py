"""State critic with one network per sub-step."""

from maze_pl.agents.torch_state_critic import StepwiseStateCritic


class TorchStepStateCritic(StepwiseStateCritic):
    """One value network per sub-step; see `StepwiseStateCritic` for the arguments."""

    kind = "step"
