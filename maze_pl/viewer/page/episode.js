// One episode: acts in their order, found by env step, and everything known about them.

class Episode {
  /** Decode what the overview needs; observations and decisions follow in `openDetails`. */
  static async open(description) {
    const episode = new Episode();
    const { acts, env_steps: envSteps, events } = description;
    const arrays = {
      envStep: acts.env_step,
      stepKey: acts.step_key,
      agent: acts.agent,
      actReward: acts.reward,
      value: acts.value,
      reward: envSteps.reward,
      eventStep: events.env_step,
      eventName: events.name,
    };
    const [decoded, parts, kpis] = await Promise.all([
      decodeAll(arrays),
      decodeAll(envSteps.parts),
      decodeAll(description.running_kpis),
    ]);
    const valuesOf = (name) => decoded.get(name)?.values ?? null;
    Object.assign(episode, { description, parts, kpis });
    episode.name = description.name;
    episode.nActs = acts.n;
    episode.nSteps = description.n_env_steps;
    episode.nComplete = description.n_complete_env_steps ?? episode.nSteps;
    episode.stepKeys = description.step_keys;
    episode.envStep = valuesOf("envStep");
    episode.stepKey = valuesOf("stepKey");
    episode.agent = valuesOf("agent");
    episode.actReward = valuesOf("actReward");
    episode.value = valuesOf("value");
    episode.reward = valuesOf("reward");
    // units of act rewards and values, and of step rewards; null for those of the environment
    episode.actUnit = acts.unit ?? null;
    episode.stepUnit = envSteps.unit ?? null;
    episode.hasAgents = episode.agent.some((number) => number !== episode.agent[0]);
    episode.pictureOf = description.pictures ? (await decode(description.pictures.index)).values : null;
    episode.indexActs();
    const [eventSteps, eventNames] = [valuesOf("eventStep"), valuesOf("eventName")];
    episode.events = new EventTable(events.names, eventSteps, eventNames, events.attributes, episode.nSteps);
    episode.events.isRecorded = events.is_recorded ?? true;
    episode.details = null;
    return episode;
  }

  /** The number of complete env steps, as in statistics; an episode may end within another one. */
  lengthText() {
    return counted(this.nComplete, "env step") + (this.nComplete < this.nSteps ? " and part of another" : "");
  }

  indexActs() {
    const counts = new Int32Array(this.stepKeys.length);
    this.rowOf = new Int32Array(this.nActs);
    this.firstAct = new Int32Array(this.nSteps + 1).fill(this.nActs);
    for (let act = this.nActs - 1; act >= 0; act -= 1) this.firstAct[this.envStep[act]] = act;
    for (let step = this.nSteps - 1; step >= 0; step -= 1) {
      this.firstAct[step] = Math.min(this.firstAct[step], this.firstAct[step + 1]);
    }
    for (let act = 0; act < this.nActs; act += 1) {
      this.rowOf[act] = counts[this.stepKey[act]];
      counts[this.stepKey[act]] += 1;
    }
    this.returnSoFar = new Float64Array(this.nSteps);
    let sum = 0;
    for (let step = 0; step < this.nSteps; step += 1) {
      sum += this.reward[step];
      this.returnSoFar[step] = sum;
    }
  }

  /** Decode observations and heads, by step key and name. */
  async openDetails() {
    if (this.details) return;
    const observations = new Map();
    const heads = new Map();
    for (const key of this.stepKeys) {
      observations.set(key, await this.openEach(this.description.observations[key] ?? {}, ["values", "index"]));
      const arrays = ["probabilities", "allowed", "action", "most_likely", "density_x", "density"];
      heads.set(key, await this.openEach(this.description.heads[key] ?? {}, arrays));
    }
    this.details = { observations, heads };
  }

  async openEach(descriptions, arrays) {
    const opened = new Map();
    for (const [name, description] of Object.entries(descriptions)) {
      const decoded = { ...description };
      for (const array of arrays) decoded[array] = await decode(description[array]);
      opened.set(name, decoded);
    }
    return opened;
  }

  actsIn(step) {
    return this.firstAct[step + 1] - this.firstAct[step];
  }

  /** The number of an act in its env step; the last one of the step if there are fewer. */
  actAt(step, number) {
    const first = this.firstAct[step];
    const last = this.firstAct[step + 1] - 1;
    return Math.max(0, Math.min(first + number, last));
  }

  keyOf(act) {
    return this.stepKeys[this.stepKey[act]];
  }

  pictureAt(act) {
    if (!this.pictureOf) return null;
    const { per, images, alt } = this.description.pictures;
    const index = this.pictureOf[per === "act" ? act : this.envStep[act]];
    return { address: images[index], text: alt ? alt[index] : null };
  }
}

/** Raw events sorted by env step. */
class EventTable {
  constructor(names, steps, nameOf, attributes, nSteps) {
    this.names = names;
    const order = Int32Array.from(steps.keys()).sort((a, b) => steps[a] - steps[b] || a - b);
    this.step = Int32Array.from(order, (event) => steps[event]);
    this.nameOf = Int32Array.from(order, (event) => nameOf[event]);
    this.attributes = Array.from(order, (event) => attributes[event]);
    this.length = order.length;
    this.texts = new Array(this.length);
    this.first = new Int32Array(nSteps + 1).fill(this.length);
    for (let event = this.length - 1; event >= 0; event -= 1) this.first[Math.min(this.step[event], nSteps)] = event;
    for (let step = nSteps - 1; step >= 0; step -= 1) this.first[step] = Math.min(this.first[step], this.first[step + 1]);
  }

  name(event) {
    return this.names[this.nameOf[event]];
  }

  text(event) {
    this.texts[event] ??= plainText(this.attributes[event] ?? {});
    return this.texts[event];
  }
}
