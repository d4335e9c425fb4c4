// One episode at one act: its picture, the decision, the outcome and the observation.

const ACTS_SHOWN = 24;

class Pane {
  constructor(episode, letter, onact) {
    Object.assign(this, { episode, onact, views: new Map(), act: -1 });
    const { description } = episode;
    const heading = element("h2", {});
    if (letter) heading.append(element("span", { class: "letter", text: letter }));
    heading.append(element("span", { text: episode.name }));
    this.ended = element("p", { class: "ended", hidden: true });
    this.acts = element("ol", { class: "acts", "aria-label": "Acts of this env step" });
    const headline = element("header", { class: "pane-head" }, heading, this.makeFacts(description), this.ended, this.acts);
    this.image = element("img", { class: "picture" });
    this.picture = card("Picture", this.image);
    this.decision = element("div", { class: "body" }, element("p", { class: "waiting", text: "Reading …" }));
    this.observation = element("div", { class: "body" }, element("p", { class: "waiting", text: "Reading …" }));
    this.decisionCard = card("Decision", this.decision);
    this.outcome = new OutcomeView(episode);
    this.observationCard = card("Observation", this.observation);
    const left = element("div", { class: "left" });
    this.picture.classList.add("picture-card");
    this.picture.firstChild.classList.add("for-readers");
    if (episode.pictureOf) left.append(this.picture);
    left.append(this.observationCard);
    const outcomeCard = card("Outcome", this.outcome.root);
    outcomeCard.classList.add("outcome-card");
    this.decisionCard.classList.add("decision-card");
    const grid = element("div", { class: "pane-grid" }, left, this.decisionCard, outcomeCard);
    this.root = element("article", { class: "pane", "aria-label": letter ? `Episode ${letter}` : "Episode" }, headline, grid);
    setHidden(this.acts, episode.stepKeys.length === 1 && episode.nActs === episode.nSteps && !episode.hasAgents);
  }

  makeFacts(description) {
    const ends = { terminated: "terminated", truncated: "truncated", unfinished: "not finished" };
    const facts = description.policy ? [`policy ${description.policy}`] : [];
    if (description.seed !== null) facts.push(`episode seed ${description.seed}`);
    const isConverted = Boolean(description.return_unit);
    const ofEnvironment = this.episode.stepUnit && !isConverted ? " in rewards of the environment" : "";
    const total = `${isConverted ? "converted " : ""}return ${formatNumber(description.return)}${ofEnvironment}`;
    facts.push(total, this.episode.lengthText(), ends[description.end]);
    return element("p", { class: "facts" }, ...facts.map((fact) => element("span", { text: fact })));
  }

  /** Show an act; `ended` says that the episode was over before the env step of the position. */
  show(act, ended) {
    const { episode } = this;
    this.root.classList.toggle("is-over", ended);
    setHidden(this.ended, !ended);
    if (ended) setText(this.ended, `This episode ended after ${episode.lengthText()}; its last act is shown.`);
    if (act === this.act) return;
    this.act = act;
    this.showPicture(act);
    this.showActs(act);
    this.outcome.update(act);
    this.showDetails();
  }

  showPicture(act) {
    const picture = this.episode.pictureAt(act);
    if (!picture) return;
    setPicture(this.image, picture.address, picture.text ?? `Env step ${this.episode.envStep[act] + 1}`);
  }

  nameOf(act) {
    const key = this.episode.keyOf(act);
    return /^\d+$/.test(key) ? `sub-step ${key}` : key;
  }

  describe(act) {
    const { episode } = this;
    const agent = episode.hasAgents ? `, agent ${episode.agent[act]}` : "";
    return `${this.nameOf(act)}${agent}`;
  }

  /** The acts of the env step as a row of marks, the current one with its name. */
  showActs(act) {
    if (this.acts.hidden) return;
    const { episode } = this;
    const step = episode.envStep[act];
    const first = Math.max(episode.firstAct[step], act - ACTS_SHOWN + 1);
    const end = Math.min(episode.firstAct[step + 1], first + ACTS_SHOWN);
    const marks = [];
    for (let other = first; other < end; other += 1) {
      const name = element("span", { class: "act-name", text: this.nameOf(other) });
      const parts = [mark(episode.stepKey[other]), name];
      if (episode.hasAgents) {
        const agent = episode.agent[other];
        parts.push(element("span", { class: `agent key-${agent % SHAPES.length}`, text: `agent ${agent}` }));
      }
      const number = other - episode.firstAct[step];
      const chip = element("button", { type: "button", class: "act", onclick: () => this.onact(step, number) }, ...parts);
      if (other === act) chip.setAttribute("aria-current", "step");
      chip.title = this.describe(other);
      marks.push(element("li", {}, chip));
    }
    const hasFocus = this.acts.contains(document.activeElement);
    this.acts.replaceChildren(...marks);
    if (hasFocus) this.acts.querySelector("[aria-current]").focus();
  }

  /** Show the decision and the observation once they are decoded. */
  showDetails() {
    const { details } = this.episode;
    if (!details || this.act < 0) return;
    const key = this.episode.keyOf(this.act);
    if (!this.views.has(key)) {
      const views = [new DecisionView(details.heads.get(key)), new ObservationView(details.observations.get(key))];
      this.views.set(key, views);
    }
    const [decision, observation] = this.views.get(key);
    if (this.decision.firstChild !== decision.root) this.decision.replaceChildren(decision.root);
    if (this.observation.firstChild !== observation.root) this.observation.replaceChildren(observation.root);
    const row = this.episode.rowOf[this.act];
    decision.update(row);
    observation.update(row);
  }

  redraw() {
    this.showDetails();
  }
}
