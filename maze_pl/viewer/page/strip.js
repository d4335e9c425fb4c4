// The strip over a whole episode: reward, value, events and differences by env step, gathered by pixel.

const LANES = { reward: 34, value: 34, events: 14, differences: 14 };
const LANE_GAP = 4;

class Strip {
  /** `onseek` gets the env step that was clicked or dragged to. */
  constructor(episode, letter, nSteps, onseek) {
    Object.assign(this, { episode, nSteps, onseek, differences: null, matching: null, step: 0 });
    this.lanes = ["reward"];
    this.valueOfStep = episode.value ? this.gatherValue() : null;
    if (this.valueOfStep) this.lanes.push("value");
    if (episode.events.length) this.lanes.push("events");
    this.canvas = element("canvas", { role: "img" });
    this.marker = element("div", { class: "marker" });
    this.hint = element("div", { class: "strip-hint", hidden: true });
    this.plot = element("div", { class: "strip-plot" }, this.canvas, this.marker, this.hint);
    this.labels = element("div", { class: "strip-labels", "aria-hidden": "true" });
    const badge = letter ? [element("span", { class: "letter", text: letter })] : [];
    this.root = element("div", { class: "strip" }, ...badge, this.labels, this.plot);
    this.listen();
    this.label();
  }

  /** The mean value of the acts of each env step. */
  gatherValue() {
    const { value, firstAct, nSteps } = this.episode;
    const means = new Float32Array(nSteps).fill(NaN);
    for (let step = 0; step < nSteps; step += 1) {
      let sum = 0;
      let count = 0;
      for (let act = firstAct[step]; act < firstAct[step + 1]; act += 1) {
        if (Number.isNaN(value[act])) continue;
        sum += value[act];
        count += 1;
      }
      if (count) means[step] = sum / count;
    }
    return means.every(Number.isNaN) ? null : means;
  }

  setDifferences(stepDiffers) {
    this.differences = stepDiffers;
    if (!this.lanes.includes("differences")) this.lanes.push("differences");
    this.label();
    this.draw();
  }

  /** Highlight events: `matching` is true for the number of an event to highlight; null for all. */
  setMatching(matching) {
    this.matching = matching;
    this.draw();
  }

  label() {
    const ranges = { reward: spanOf(this.episode.reward), value: this.valueOfStep && spanOf(this.valueOfStep) };
    const units = { reward: this.episode.stepUnit, value: this.episode.actUnit };
    const rows = this.lanes.map((lane) => {
      const name = element("span", { text: lane === "differences" ? "differs" : lane });
      if (units[lane]) name.append(element("abbr", { text: " conv.", title: `converted: ${units[lane]}` }));
      const row = element("div", { class: "strip-label" }, name);
      row.style.height = `${LANES[lane]}px`;
      if (ranges[lane]) {
        const [low, high] = ranges[lane].map(formatShort);
        row.append(element("span", { class: "strip-range", text: low === high ? low : `${low} … ${high}` }));
      }
      return row;
    });
    this.labels.replaceChildren(...rows);
    const { name, nSteps, events } = this.episode;
    const described = `${name}: ${this.lanes.join(", ")} over ${counted(nSteps, "env step")}, ${counted(events.length, "event")}`;
    this.canvas.setAttribute("aria-label", described);
    this.height = this.lanes.reduce((sum, lane) => sum + LANES[lane] + LANE_GAP, 0);
    this.canvas.style.height = `${this.height}px`;
  }

  listen() {
    const stepAt = (event) => {
      const box = this.canvas.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      return Math.max(0, Math.min(this.nSteps - 1, Math.floor(share * this.nSteps)));
    };
    this.plot.addEventListener("pointerdown", (event) => {
      this.plot.setPointerCapture(event.pointerId);
      this.onseek(stepAt(event));
    });
    this.plot.addEventListener("pointermove", (event) => {
      const step = stepAt(event);
      if (event.buttons & 1) this.onseek(step);
      this.showHint(step);
    });
    this.plot.addEventListener("pointerleave", () => setHidden(this.hint, true));
  }

  showHint(step) {
    const reward = step < this.episode.nSteps ? `, ${this.episode.stepUnit ? "converted " : ""}reward ${formatNumber(this.episode.reward[step])}` : ", ended";
    setText(this.hint, `Step ${formatNumber(step + 1)}${reward}`);
    setHidden(this.hint, false);
    const share = (step + 0.5) / this.nSteps;
    this.hint.style.left = `${100 * share}%`;
    this.hint.style.transform = `translateX(${-100 * share}%)`;
  }

  show(step) {
    this.marker.style.left = `${(100 * (step + 0.5)) / this.nSteps}%`;
  }

  draw() {
    const width = this.plot.clientWidth;
    if (!width) return;
    const context = surface(this.canvas, width, this.height);
    let top = 0;
    for (const lane of this.lanes) {
      const area = { context, width, top, height: LANES[lane] };
      context.fillStyle = colour("lane");
      context.fillRect(0, top, width, area.height);
      if (lane === "reward") this.drawRewards(area);
      else if (lane === "value") this.drawValues(area);
      else if (lane === "events") this.drawEvents(area);
      else this.drawDifferences(area);
      const end = (width * this.episode.nSteps) / this.nSteps;
      if (end < width) hatch(context, end, top, width - end, area.height, colour("hatch"));
      top += area.height + LANE_GAP;
    }
  }

  /** Call `paint(x, width, first, end)` for each column of pixels, or each env step where these are wider. */
  eachColumn(width, paint) {
    const columns = Math.min(Math.ceil(width), this.nSteps);
    for (let column = 0; column < columns; column += 1) {
      const first = Math.floor((column * this.nSteps) / columns);
      const end = Math.min(Math.floor(((column + 1) * this.nSteps) / columns), this.episode.nSteps);
      if (first < end) paint((column * width) / columns, width / columns, first, end);
    }
  }

  drawRewards({ context, width, top, height }) {
    const [low, high] = spanOf(this.episode.reward);
    const [bottom, peak] = [Math.min(0, low), Math.max(0, high)];
    const at = (value) => top + 1 + (height - 2) * (1 - (value - bottom) / (peak - bottom || 1));
    this.eachColumn(width, (x, size, first, end) => {
      const [smallest, largest] = extremes(this.episode.reward, first, end);
      const gap = size > 4 ? 1 : 0;
      for (const [value, name] of [[Math.max(largest, 0), "good"], [Math.min(smallest, 0), "bad"]]) {
        if (value === 0) continue;
        context.fillStyle = colour(name);
        const [from, to] = [Math.min(at(value), at(0)), Math.max(at(value), at(0))];
        context.fillRect(x, from, size - gap, Math.max(to - from, 1));
      }
    });
    context.fillStyle = colour("muted");
    context.fillRect(0, at(0) - 0.25, width, 0.5);
  }

  drawValues({ context, width, top, height }) {
    const [low, high] = spanOf(this.valueOfStep);
    const at = (value) => top + 2 + (height - 4) * (1 - (value - low) / (high - low || 1));
    context.beginPath();
    let isDrawing = false;
    this.eachColumn(width, (x, size, first, end) => {
      const [smallest, largest] = extremes(this.valueOfStep, first, end);
      if (smallest > largest) {
        isDrawing = false;
        return;
      }
      const middle = x + size / 2;
      if (isDrawing) context.lineTo(middle, at(largest));
      else context.moveTo(middle, at(largest));
      if (smallest < largest) context.lineTo(middle, at(smallest));
      isDrawing = true;
    });
    context.strokeStyle = colour("accent");
    context.lineWidth = 1.5;
    context.lineJoin = "round";
    context.stroke();
  }

  drawEvents({ context, width, top, height }) {
    const { first, length } = this.episode.events;
    const counts = [];
    let peak = 1;
    this.eachColumn(width, (x, size, from, end) => {
      const firstEvent = first[from];
      const endOfEvents = end === this.episode.nSteps ? length : first[end];
      const all = endOfEvents - firstEvent;
      let matched = all;
      if (this.matching) {
        matched = 0;
        for (let event = firstEvent; event < endOfEvents; event += 1) matched += this.matching[event];
      }
      peak = Math.max(peak, all);
      if (all) counts.push([x, size, all, matched]);
    });
    for (const [x, size, all, matched] of counts) {
      const bar = (count) => (height - 1) * (0.35 + (0.65 * Math.log1p(count)) / Math.log1p(peak));
      const broad = Math.max(Math.min(size - 1, 6), 1);
      context.fillStyle = colour(this.matching ? "hatch" : "event");
      context.fillRect(x + (size - broad) / 2, top + height - bar(all), broad, bar(all));
      if (!this.matching || !matched) continue;
      context.fillStyle = colour("event");
      context.fillRect(x + (size - broad) / 2, top + height - bar(matched), broad, bar(matched));
    }
  }

  drawDifferences({ context, width, top, height }) {
    context.fillStyle = colour("chosen");
    this.eachColumn(width, (x, size, first, end) => {
      if (!this.differences.subarray(first, end).includes(1)) return;
      const broad = Math.max(Math.min(size, 6), 1);
      context.fillRect(x + (size - broad) / 2, top + 1, broad, height - 2);
    });
  }
}

/** Smallest and largest number of a part of an array, without NaN. */
function extremes(values, first, end) {
  let low = Infinity;
  let high = -Infinity;
  for (let i = first; i < end; i += 1) {
    if (values[i] < low) low = values[i];
    if (values[i] > high) high = values[i];
  }
  return [low, high];
}

function spanOf(values) {
  const [low, high] = extremes(values, 0, values.length);
  return low > high ? [0, 0] : [low, high];
}
