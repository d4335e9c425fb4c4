// Positions of the scrubber: the acts of one episode, or of two that run side by side by env step.

class Timeline {
  constructor(episodes) {
    this.episodes = episodes;
    this.nSteps = Math.max(...episodes.map((episode) => episode.nSteps));
    this.start = new Int32Array(this.nSteps + 1);
    for (let step = 0; step < this.nSteps; step += 1) {
      let acts = 1;
      for (const episode of episodes) if (step < episode.nSteps) acts = Math.max(acts, episode.actsIn(step));
      this.start[step + 1] = this.start[step] + acts;
    }
    this.length = this.start[this.nSteps];
    this.differences = null;
  }

  /** Env step of a position, and the number of the act in it. */
  place(position) {
    let low = 0;
    let high = this.nSteps - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.start[middle] <= position) low = middle;
      else high = middle - 1;
    }
    return { step: low, number: position - this.start[low] };
  }

  position(step, number = 0) {
    const clamped = Math.max(0, Math.min(step, this.nSteps - 1));
    return Math.min(this.start[clamped] + number, this.start[clamped + 1] - 1);
  }

  /** The act of an episode at a place; after its end the last one. */
  actOf(episode, { step, number }) {
    const ended = step >= episode.nSteps;
    return { act: ended ? episode.nActs - 1 : episode.actAt(step, number), ended };
  }

  /** Mark positions at which two episodes decide differently, or at which a single one does not take its most likely action. */
  findDifferences() {
    this.differences = new Uint8Array(this.length);
    const [first, second] = this.episodes;
    const steps = second ? Math.min(first.nSteps, second.nSteps) : first.nSteps;
    for (let step = 0; step < steps; step += 1) {
      for (let position = this.start[step]; position < this.start[step + 1]; position += 1) {
        const place = { step, number: position - this.start[step] };
        const act = this.actOf(first, place).act;
        const differs = second ? !sameDecision(first, act, second, this.actOf(second, place).act) : !isMostLikely(first, act);
        if (differs) this.differences[position] = 1;
      }
    }
    this.nDifferences = this.differences.reduce((sum, differs) => sum + differs, 0);
    this.firstDifference = this.differences.indexOf(1);
  }

  /** The next or the previous difference, from the other end if there is none left; -1 without any. */
  nextDifference(position, direction) {
    if (!this.differences || this.nDifferences === 0) return -1;
    for (let offset = 1; offset <= this.length; offset += 1) {
      const candidate = (position + direction * offset + 2 * this.length) % this.length;
      if (this.differences[candidate]) return candidate;
    }
    return -1;
  }
}

function equalRows(a, rowOfA, b, rowOfB) {
  if (a.width !== b.width) return false;
  for (let i = 0; i < a.width; i += 1) {
    const left = a.values[rowOfA * a.width + i];
    const right = b.values[rowOfB * b.width + i];
    if (Math.abs(left - right) > 1e-6 * (1 + Math.abs(left))) return false;
  }
  return true;
}

function sameDecision(a, actOfA, b, actOfB) {
  const key = a.keyOf(actOfA);
  if (key !== b.keyOf(actOfB) || a.agent[actOfA] !== b.agent[actOfB]) return false;
  const heads = b.details.heads.get(key);
  for (const [name, head] of a.details.heads.get(key)) {
    const other = heads.get(name);
    if (!other || !equalRows(head.action, a.rowOf[actOfA], other.action, b.rowOf[actOfB])) return false;
  }
  return true;
}

function isMostLikely(episode, act) {
  const row = episode.rowOf[act];
  for (const head of episode.details.heads.get(episode.keyOf(act)).values()) {
    const compared = head.most_likely && head.kind !== "continuous";
    if (compared && !equalRows(head.action, row, head.most_likely, row)) return false;
  }
  return true;
}
