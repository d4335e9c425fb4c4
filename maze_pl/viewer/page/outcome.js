// Outcome of a step: value, reward and its parts, events, KPIs so far.

const EVENTS_SHOWN = 12;

class OutcomeView {
  constructor(episode) {
    this.episode = episode;
    this.root = element("div", { class: "outcome" });
    this.makeFigures();
    if (episode.parts.size) this.makeParts();
    this.eventsHeading = element("h4", { text: "Events of the step" });
    this.events = element("ul", { class: "step-events" });
    this.root.append(element("div", {}, this.eventsHeading, this.events));
    if (Object.keys(episode.description.kpis).length || episode.kpis.size) this.makeKpis();
    this.shownStep = -1;
  }

  makeFigures() {
    const figure = (label) => {
      const number = element("dd");
      this.figures.append(element("div", { class: "figure" }, element("dt", { text: label }), number));
      return number;
    };
    this.figures = element("dl", { class: "figures" });
    const { actUnit, stepUnit, value, actReward, nActs, nSteps } = this.episode;
    const converted = (label, unit) => (unit ? `${label}, converted` : label);
    this.value = value ? figure(converted("Value", actUnit)) : null;
    this.stepReward = figure(converted("Reward of the step", stepUnit));
    this.actReward = actReward && nActs > nSteps ? figure(converted("Reward of the act", actUnit)) : null;
    this.returnSoFar = figure(converted("Return so far", stepUnit));
    this.root.append(this.figures);
    const hasConverted = stepUnit || (actUnit && (this.value || this.actReward));
    if (hasConverted) this.root.append(element("p", { class: "legend units", text: `converted: ${stepUnit ?? actUnit}` }));
  }

  makeParts() {
    const { parts } = this.episode;
    let low = 0;
    let high = 0;
    for (const part of parts.values()) {
      const [smallest, largest] = part.range();
      low = Math.min(low, smallest);
      high = Math.max(high, largest);
    }
    this.parts = [...parts].map(([name, values]) => ({ values: values.values, bar: new SignedBar(name, [low, high]) }));
    const list = element("ul", { class: "bars" }, ...this.parts.map((part) => part.bar.root));
    this.root.append(element("div", {}, element("h4", { text: "Reward by part" }), list));
  }

  makeKpis() {
    const { kpis, description } = this.episode;
    const names = [...new Set([...kpis.keys(), ...Object.keys(description.kpis)])];
    const head = element("tr", {}, element("th", { scope: "col", text: "KPI" }));
    if (kpis.size) head.append(element("th", { scope: "col", text: "so far" }));
    head.append(element("th", { scope: "col", text: "episode" }));
    this.kpis = [];
    const rows = names.map((name) => {
      const row = element("tr", {}, element("th", { scope: "row" }, breakable(name)));
      if (kpis.size) {
        const cell = element("td");
        if (kpis.has(name)) this.kpis.push({ cell, values: kpis.get(name).values });
        row.append(cell);
      }
      row.append(element("td", { text: formatNumber(description.kpis[name]) }));
      return row;
    });
    const table = element("table", { class: "kpis" }, element("thead", {}, head), element("tbody", {}, ...rows));
    this.root.append(table);
  }

  update(act) {
    const { episode } = this;
    const step = episode.envStep[act];
    if (this.value) setText(this.value, formatNumber(episode.value[act]));
    if (this.actReward) setText(this.actReward, formatNumber(episode.actReward[act]));
    if (step === this.shownStep) return;
    this.shownStep = step;
    setText(this.stepReward, formatNumber(episode.reward[step]));
    setText(this.returnSoFar, formatNumber(episode.returnSoFar[step]));
    for (const { values, bar } of this.parts ?? []) bar.update(values[step]);
    for (const { cell, values } of this.kpis ?? []) setText(cell, formatNumber(values[step]));
    this.showEvents(step);
  }

  showEvents(step) {
    const { events } = this.episode;
    const [first, end] = [events.first[step], events.first[step + 1]];
    setText(this.eventsHeading, end > first ? `Events of the step (${end - first})` : "Events of the step");
    const items = [];
    for (let event = first; event < Math.min(end, first + EVENTS_SHOWN); event += 1) {
      const name = element("span", { class: "event-name" }, breakable(events.name(event)));
      items.push(element("li", {}, name, " ", element("span", { class: "event-text", text: events.text(event) })));
    }
    const more = end - first - items.length;
    if (more > 0) items.push(element("li", { class: "muted", text: `and ${counted(more, "further event")}, see the event log` }));
    const none = events.isRecorded ? "none" : "not recorded";
    if (!items.length) items.push(element("li", { class: "muted", text: none }));
    this.events.replaceChildren(...items);
  }
}
