"""Results of an off-policy evaluation."""

import csv
import io
import json
import math
from dataclasses import asdict, dataclass, field

from maze_pl.runs.intervals import Interval
from maze_pl.runs.tables import aligned, number_text

FEW_EPISODES = 10.0
"""Effective sample size below which weighted estimates are called unreliable."""

_LARGEST = 1e7
"""Size from which numbers are written with an exponent."""


@dataclass(frozen=True)
class OffPolicyEstimate:
    """Estimate of the value of a policy.

    Attributes:
        name: Name of the estimator.
        value: Expected discounted return of an episode; NaN if no episode has a weight.
        interval: 95% interval over resampled episodes; None if it cannot be computed.
    """

    name: str
    value: float
    interval: Interval | None


@dataclass(frozen=True)
class OffPolicyEvaluation:
    """Estimates of the value of a policy from recorded episodes.

    Attributes:
        policy: Name of the evaluated policy.
        behaviour: Name of the policy that recorded the episodes; `clone` if it was estimated, empty
            if none was needed.
        gamma: Discount of an environment step.
        n_episodes: Number of recorded episodes.
        n_acts: Number of recorded acts.
        recorded: Mean discounted return of the recorded episodes.
        effective_sample_size: Number of episodes of the evaluated policy that would say as much as
            the weighted ones; NaN without weights.
        estimates: The estimates.
        warnings: Reasons to doubt them.
        reward_wrappers: Class names of the wrappers that changed the recorded rewards.
        reward_source: The run from which they are known; empty for that of the recordings.
        clone_log_prob: Mean log-probability, in nats, of an act of the episodes that a cloned
            behaviour was not trained on; NaN if none was cloned.
    """

    policy: str
    behaviour: str
    gamma: float
    n_episodes: int
    n_acts: int
    recorded: OffPolicyEstimate
    effective_sample_size: float
    estimates: list[OffPolicyEstimate]
    warnings: list[str] = field(default_factory=list)
    reward_wrappers: list[str] = field(default_factory=list)
    reward_source: str = ""
    clone_log_prob: float = math.nan

    def __getitem__(self, name: str) -> OffPolicyEstimate:
        """Return the estimate of an estimator."""
        for one in self.estimates:
            if one.name == name:
                return one
        raise KeyError(f"there is no estimate {name!r}; there are {[one.name for one in self.estimates]}")

    def text(self) -> str:
        """Table for the console."""
        title = f"{self.policy}: expected return with gamma {self.gamma:g}, from {self.n_episodes:,} recorded episodes"
        rows = [["estimator", "value", "95% interval"]]
        for one in (self.recorded, *self.estimates):
            name = one.name.replace("_", " ")
            interval = "" if one.interval is None else " to ".join(map(_estimate_text, one.interval))
            rows.append([name, _estimate_text(one.value) or "none", interval])
        lines = [title]
        if self.reward_wrappers:
            names = " and ".join(self.reward_wrappers)
            where = f" in episodes of {self.reward_source}" if self.reward_source else ""
            lines.append(f"in rewards as recorded, which are those after {names}{where}")
        lines.append(aligned(rows))
        if not math.isnan(self.effective_sample_size):
            source = self.behaviour
            if source == "clone":
                source = f"cloned, mean log-probability of held-out acts {self.clone_log_prob:.3f}"
            size = f"{self.effective_sample_size:.1f} of {self.n_episodes:,} episodes"
            lines.append(f"behaviour policy: {source}; effective sample size: {size}")
        lines += [f"warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def to_json(self) -> str:
        """All results as JSON; numbers that are not finite are null."""

        def plain(value: object) -> object:
            if isinstance(value, dict):
                return {key: plain(part) for key, part in value.items()}
            if isinstance(value, list | tuple):
                return [plain(part) for part in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        return json.dumps(plain(asdict(self)), indent=2) + "\n"

    def to_csv(self) -> str:
        """The estimates as CSV, with the recorded return in the first row."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["estimator", "value", "low", "high"])
        for one in (self.recorded, *self.estimates):
            writer.writerow([one.name, one.value, *(one.interval or ("", ""))])
        return file.getvalue()


def _estimate_text(value: float) -> str:
    """Format a number; a huge one in one notation, though it is an integer by rounding; NaN is empty."""
    return f"{value:.4g}" if abs(value) >= _LARGEST else number_text(value)
