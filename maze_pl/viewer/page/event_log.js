// The raw events of the shown episodes: search, filter by name, go to the step of one. Only visible rows exist.

const ROW_HEIGHT = 30;
const SPARE_ROWS = 6;

class EventLog {
  constructor(root, onseek, onfilter) {
    Object.assign(this, { root, onseek, onfilter, entries: [], shown: [], step: 0 });
    this.search = element("input", { type: "search", placeholder: "Search names and attributes", "aria-label": "Search events" });
    this.names = element("select", { "aria-label": "Name of events" });
    this.count = element("span", { class: "muted", role: "status" });
    this.previous = button("Previous", () => this.seek(-1), { "aria-label": "Go to the previous listed event" });
    this.next = button("Next", () => this.seek(1), { "aria-label": "Go to the next listed event" });
    this.space = element("div", { class: "log-space", role: "list" });
    this.list = element("div", { class: "log", tabindex: "0", role: "group", "aria-label": "Events" }, this.space);
    const controls = element("div", { class: "log-controls" }, this.search, this.names, this.previous, this.next, this.count);
    root.replaceChildren(element("h3", { id: "event-log-heading", text: "Event log" }), controls, this.list);
    this.search.addEventListener("input", () => this.filterSoon());
    this.search.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.seek(event.shiftKey ? -1 : 1);
      if (event.key === "Escape") this.search.blur();
    });
    this.names.addEventListener("change", () => this.filter());
    this.list.addEventListener("scroll", () => this.drawRows(), { passive: true });
  }

  /** Show the events of the episodes, merged by env step: entries are pairs of an episode's place and an event. */
  open(episodes) {
    this.episodes = episodes;
    this.entries = [];
    const names = new Set();
    const next = episodes.map(() => 0);
    for (;;) {
      let best = -1;
      episodes.forEach(({ events }, i) => {
        const isEarlier = best < 0 || events.step[next[i]] < episodes[best].events.step[next[best]];
        if (next[i] < events.length && isEarlier) best = i;
      });
      if (best < 0) break;
      this.entries.push([best, next[best]]);
      next[best] += 1;
    }
    for (const { events } of episodes) for (const name of events.nameOf) names.add(events.names[name]);
    const kept = this.names.value;
    const options = [...names].sort().map((name) => element("option", { value: name, text: name }));
    this.names.replaceChildren(element("option", { value: "", text: "All names" }), ...options);
    this.names.value = names.has(kept) ? kept : "";
    setHidden(this.root, this.entries.length === 0);
    this.filter();
  }

  filterSoon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.filter(), 80);
  }

  filter() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const name = this.names.value;
    this.shown = this.entries.filter(([side, event]) => {
      const { events } = this.episodes[side];
      if (name && events.name(event) !== name) return false;
      if (!words.length) return true;
      const text = `${events.name(event)} ${events.text(event)}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });
    const isAll = this.shown.length === this.entries.length;
    const total = counted(this.entries.length, "event");
    setText(this.count, isAll ? total : `${formatNumber(this.shown.length)} of ${total}`);
    this.space.style.height = `${this.shown.length * ROW_HEIGHT}px`;
    this.onfilter(this.episodes.map((episode, i) => (isAll ? null : this.matching(episode, i))));
    this.drawRows();
  }

  matching(episode, number) {
    const matching = new Uint8Array(episode.events.length);
    for (const [side, event] of this.shown) if (side === number) matching[event] = 1;
    return matching;
  }

  stepOf([side, event]) {
    return this.episodes[side].events.step[event];
  }

  /** The first listed event at or after a step. */
  find(step) {
    let low = 0;
    let high = this.shown.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.stepOf(this.shown[middle]) < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Go to the next or previous step with a listed event. */
  seek(direction) {
    const index = direction > 0 ? this.find(this.step + 1) : this.find(this.step) - 1;
    if (index >= 0 && index < this.shown.length) this.onseek(this.stepOf(this.shown[index]));
  }

  show(step) {
    if (step === this.step) return;
    this.step = step;
    if (!this.list.contains(document.activeElement)) {
      const top = this.find(step) * ROW_HEIGHT;
      const isVisible = top >= this.list.scrollTop && top + ROW_HEIGHT <= this.list.scrollTop + this.list.clientHeight;
      if (!isVisible) this.list.scrollTop = top - 2 * ROW_HEIGHT;
    }
    this.drawRows();
  }

  drawRows() {
    const first = Math.max(0, Math.floor(this.list.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const count = Math.ceil((this.list.clientHeight || 240) / ROW_HEIGHT) + 2 * SPARE_ROWS;
    const entries = this.shown.slice(first, first + count);
    while (this.space.childElementCount > entries.length) this.space.lastChild.remove();
    while (this.space.childElementCount < entries.length) this.space.append(this.makeRow());
    entries.forEach((entry, i) => this.fillRow(this.space.children[i], entry, first + i));
  }

  makeRow() {
    const cells = ["log-letter", "log-step", "log-name", "log-text"].map((name) => element("span", { class: name }));
    const row = element("button", { type: "button", class: "log-row" }, ...cells);
    row.addEventListener("click", () => this.onseek(row.step));
    return element("div", { role: "listitem", class: "log-item" }, row);
  }

  fillRow(item, entry, index) {
    const [side, event] = entry;
    const { events } = this.episodes[side];
    const row = item.firstChild;
    row.step = events.step[event];
    item.style.top = `${index * ROW_HEIGHT}px`;
    row.classList.toggle("is-current", row.step === this.step);
    const letter = this.episodes.length > 1 ? "AB"[side] : "";
    const texts = [letter, `step ${formatNumber(row.step + 1)}`, events.name(event), events.text(event)];
    texts.forEach((text, i) => setText(row.children[i], text));
    setHidden(row.children[0], !letter);
  }
}
