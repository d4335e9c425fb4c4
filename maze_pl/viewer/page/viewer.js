// The viewer: which episodes are shown, at which position, and everything that follows from it.

const byId = (id) => document.getElementById(id);

class Viewer {
  constructor(source) {
    this.source = source;
    this.opened = new Map();
    this.timeline = null;
    this.position = 0;
    this.panes = [];
    this.strips = [];
    this.isWaiting = false;
    setText(byId("title"), source.title);
    setText(byId("created"), `Made by ${source.created_by}`);
    this.transport = new Transport(byId("transport"), this);
    const seek = (step) => this.goTo(this.timeline.position(step));
    this.log = new EventLog(byId("event-log"), seek, (matching) => this.highlight(matching));
    this.seek = seek;
    this.makeChoices();
    this.makeHelp();
    this.makeTheme();
    this.makeWhich();
    new ResizeObserver(() => this.redraw()).observe(byId("panes"));
    window.addEventListener("hashchange", () => this.openAddress());
  }

  makeChoices() {
    const { episodes } = this.source;
    const options = () => episodes.map((episode, i) => element("option", { value: i, text: episode.name }));
    this.first = element("select", { "aria-label": "Episode" }, ...options());
    this.second = element("select", { "aria-label": "Compare with" });
    this.second.append(element("option", { value: "", text: "compare with …" }), ...options());
    this.first.addEventListener("change", () => this.choose(Number(this.first.value), this.partnerOf(Number(this.first.value))));
    this.second.addEventListener("change", () => this.choose(Number(this.first.value), this.chosenSecond()));
    if (episodes.length > 1) byId("choices").append(this.first, this.second);
  }

  chosenSecond() {
    return this.second.value === "" ? null : Number(this.second.value);
  }

  /** The episode to show next to another one: that of its pair if two are shown, else none. */
  partnerOf(first) {
    if (this.chosenSecond() === null) return null;
    const pair = this.source.pairs.find((candidate) => candidate.includes(first));
    return pair ? pair.find((episode) => episode !== first) : this.chosenSecond();
  }

  makeHelp() {
    const dialog = byId("help");
    const list = element("dl", { class: "keys" });
    for (const [keys, meaning] of KEYS) list.append(element("dt", { text: keys }), element("dd", { text: meaning }));
    const close = button("Close", () => dialog.close());
    dialog.append(element("h2", { id: "help-heading", text: "Keys" }), list, close);
    byId("help-button").addEventListener("click", () => this.help());
  }

  help() {
    byId("help").showModal();
  }

  /** Where the window is too narrow for two episodes side by side: buttons that switch between them. */
  makeWhich() {
    const show = (shown) => {
      byId("panes").dataset.shown = shown;
      for (const node of byId("which").children) node.setAttribute("aria-pressed", String(node.textContent === shown));
      this.redraw();
    };
    for (const shown of ["A", "B", "Both"]) byId("which").append(button(shown, () => show(shown)));
    show("A");
  }

  makeTheme() {
    const dark = matchMedia("(prefers-color-scheme: dark)");
    const refresh = () => {
      setText(byId("theme"), this.isDark() ? "Light" : "Dark");
      byId("theme").setAttribute("aria-label", this.isDark() ? "Use light colours" : "Use dark colours");
      forgetColours();
      this.redraw();
    };
    this.isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
    this.toggleTheme = () => {
      document.documentElement.dataset.theme = this.isDark() ? "light" : "dark";
      refresh();
    };
    dark.addEventListener("change", refresh);
    byId("theme").addEventListener("click", this.toggleTheme);
    refresh();
  }

  /** Open what the address names: #episode=2&with=3&step=40, counted from 0. */
  async openAddress() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const number = (name) => (/^\d+$/.test(wanted.get(name) ?? "") ? Number(wanted.get(name)) : null);
    const last = this.source.episodes.length - 1;
    const valid = (index) => (index !== null && index <= last ? index : null);
    const pair = this.source.pairs[0] ?? [0, null];
    const isNamed = valid(number("episode")) !== null;
    const [first, second] = isNamed ? [valid(number("episode")), valid(number("with"))] : pair;
    await this.choose(first, second, number("step"));
  }

  open(index) {
    if (!this.opened.has(index)) this.opened.set(index, Episode.open(this.source.episodes[index]));
    return this.opened.get(index);
  }

  /** Show one episode, or two side by side, at an env step or the one that is shown. */
  async choose(first, second, wantedStep = null) {
    const chosen = second === null || second === first ? [first] : [first, second];
    this.chosen = chosen;
    this.first.value = String(first);
    this.second.value = chosen.length > 1 ? String(second) : "";
    const episodes = await Promise.all(chosen.map((index) => this.open(index)));
    if (this.chosen !== chosen) return;
    const step = wantedStep ?? (this.timeline ? this.timeline.place(this.position).step : 0);
    this.timeline = new Timeline(episodes);
    this.position = this.timeline.position(step);
    this.build(episodes);
    this.render();
    await Promise.all(episodes.map((episode) => episode.openDetails()));
    if (this.chosen === chosen) this.showDetails();
  }

  build(episodes) {
    const letter = (i) => (episodes.length > 1 ? "AB"[i] : null);
    const onact = (step, number) => this.goTo(this.timeline.position(step, number));
    this.panes = episodes.map((episode, i) => new Pane(episode, letter(i), onact));
    this.strips = episodes.map((episode, i) => new Strip(episode, letter(i), this.timeline.nSteps, this.seek));
    byId("overview").replaceChildren(...this.strips.map((strip) => strip.root));
    byId("panes").replaceChildren(...this.panes.map((pane) => pane.root));
    byId("panes").classList.toggle("side-by-side", episodes.length > 1);
    setHidden(byId("comparison"), episodes.length === 1);
    setHidden(byId("which"), episodes.length === 1);
    setText(byId("comparison"), "Comparing decisions …");
    this.transport.difference.disabled = true;
    this.log.open(episodes);
    for (const strip of this.strips) strip.draw();
  }

  /** What needs the decoded decisions: panes, and where decisions differ. */
  showDetails() {
    const { timeline } = this;
    for (const pane of this.panes) pane.showDetails();
    timeline.findDifferences();
    this.transport.difference.disabled = timeline.nDifferences === 0;
    setText(this.transport.difference, this.panes.length > 1 ? "Next difference" : "Next non-greedy act");
    const meaning = this.panes.length > 1 ? "decision at which the two differ" : "act that is not the most likely one";
    this.transport.difference.title = `Go to the next ${meaning} (d)`;
    if (this.panes.length > 1) {
      setText(byId("comparison"), this.comparison());
      const differs = new Uint8Array(timeline.nSteps);
      for (let position = 0; position < timeline.length; position += 1) {
        if (timeline.differences[position]) differs[timeline.place(position).step] = 1;
      }
      this.strips[0].setDifferences(differs);
    }
    byId("panes").removeAttribute("aria-busy");
    document.documentElement.dataset.ready = "";
  }

  comparison() {
    const { nDifferences, firstDifference, length } = this.timeline;
    if (!nDifferences) return "Both take the same decisions as long as both run.";
    const { step } = this.timeline.place(firstDifference);
    const share = `${formatNumber(nDifferences)} of ${counted(length, "decision")} differ`;
    return `They first decide differently at step ${formatNumber(step + 1)}; ${share}. Press f to go there, d for the next one.`;
  }

  highlight(matching) {
    this.strips.forEach((strip, i) => strip.setMatching(matching[i]));
  }

  isAtEnd() {
    return !this.timeline || this.position >= this.timeline.length - 1;
  }

  goTo(position) {
    if (!this.timeline) return;
    this.position = Math.max(0, Math.min(position, this.timeline.length - 1));
    this.renderSoon();
  }

  moveActs(acts) {
    this.goTo(this.position + acts);
  }

  moveSteps(steps) {
    if (!this.timeline) return;
    const { step, number } = this.timeline.place(this.position);
    const target = steps < 0 && number > 0 ? step : step + steps;
    this.goTo(target >= this.timeline.nSteps ? Infinity : this.timeline.position(target));
  }

  nextDifference(direction) {
    const position = this.timeline ? this.timeline.nextDifference(this.position, direction) : -1;
    if (position >= 0) this.goTo(position);
  }

  firstDifference() {
    if (this.timeline?.nDifferences) this.goTo(this.timeline.firstDifference);
  }

  search() {
    this.log.search.focus();
  }

  renderSoon() {
    if (this.isWaiting) return;
    this.isWaiting = true;
    requestAnimationFrame(() => {
      this.isWaiting = false;
      this.render();
    });
  }

  render() {
    const { timeline } = this;
    const place = timeline.place(this.position);
    timeline.episodes.forEach((episode, i) => {
      const { act, ended } = timeline.actOf(episode, place);
      this.panes[i].show(act, ended);
      this.strips[i].show(place.step);
    });
    this.transport.show(this.position, timeline.length, this.describe(place));
    this.log.show(place.step);
    if (!this.transport.isPlaying) this.announceSoon();
  }

  describe({ step, number }) {
    const acts = this.timeline.start[step + 1] - this.timeline.start[step];
    const act = acts > 1 ? `, act ${number + 1} of ${acts}` : "";
    return `Step ${formatNumber(step + 1)} of ${formatNumber(this.timeline.nSteps)}${act}`;
  }

  announceSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.announce(), 600);
  }

  announce() {
    const place = this.timeline.place(this.position);
    const acts = this.panes.map((pane) => pane.describe(pane.act)).join("; ");
    setText(byId("announcement"), `${this.describe(place)}: ${acts}`);
  }

  redraw() {
    for (const strip of this.strips) strip.draw();
    for (const pane of this.panes) pane.redraw();
  }
}

function showFailure(error) {
  const node = byId("failure");
  node.hidden = false;
  node.textContent = `The episodes cannot be shown: ${error.message}`;
  byId("panes").replaceChildren();
}

async function start() {
  const node = byId("document");
  const source = JSON.parse(node.textContent);
  node.remove();
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser cannot decompress (it lacks DecompressionStream); a current one can");
  }
  await new Viewer(source).openAddress();
}

start().catch((error) => {
  showFailure(error);
  throw error;
});
