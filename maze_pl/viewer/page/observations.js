// Observations by name: images as images, vectors as bars, matrices as heat maps, discrete ones as options.

const BARS = 16; // numbers that get a row each; more are drawn as columns
const NUMBERS = 512; // numbers that are written out
const CHIPS = 40;
const TABLE_COLUMNS = 32; // columns up to which each may have colours for its numbers
const UNLIKE = 10; // how much wider the widest column of a table is than the narrowest one

/** The observations of one step key; `update` shows one row of them. */
class ObservationView {
  constructor(observations) {
    this.views = [...observations].map(([name, observation]) => new NamedObservation(name, observation));
    this.root = element("div", { class: "observations" }, ...this.views.map((view) => view.root));
    if (!this.views.length) this.root.append(element("p", { class: "muted", text: "No observation was recorded." }));
    const units = new Set([...observations.values()].map(({ unit }) => unit).filter(Boolean));
    for (const unit of units) this.root.append(element("p", { class: "legend observation-unit", text: `converted: ${unit}` }));
  }

  update(row) {
    for (const view of this.views) view.update(row);
  }
}

class NamedObservation {
  constructor(name, observation) {
    const shape = observation.shape.length ? observation.shape.join(" × ") : observation.kind;
    const heading = element("h4", { text: name }, element("span", { class: "muted shape", text: shape }));
    if (observation.unit) heading.append(element("span", { class: "muted shape", text: "converted", title: observation.unit }));
    this.drawing = makeDrawing(name, observation);
    this.root = element("section", { class: `observation observation-${this.drawing.size}` }, heading);
    this.root.append(this.drawing.root);
  }

  update(row) {
    this.drawing.update(row);
  }
}

function makeDrawing(name, observation) {
  if (observation.pictures) return new ImageDrawing(name, observation);
  const total = observation.values.width;
  const { kind, shape } = observation;
  if (kind === "discrete" && total === 1) return new DiscreteDrawing(observation);
  if (kind === "mask") return new MaskDrawing(observation);
  if (shape.length >= 2 && total > 1) return new MatrixDrawing(name, observation);
  return total <= BARS ? new BarsDrawing(observation) : new ColumnsDrawing(name, observation);
}

class ImageDrawing {
  constructor(name, observation) {
    this.size = "wide";
    this.name = name;
    this.pictures = observation.pictures;
    this.index = observation.index;
    this.root = element("img", { class: "pixels" });
  }

  update(row) {
    setPicture(this.root, this.pictures[this.index ? this.index.values[row] : row], `Observation ${this.name}`);
  }
}

/** The range of numbers: the bounds of the space unless they are much wider than what was seen, else what was seen. */
function rangeOf(observation, column = null, most = 20) {
  const [low, high] = observation.values.range(column);
  const bounded = [observation.low, observation.high].every((bound) => typeof bound === "number" && Number.isFinite(bound));
  if (bounded && observation.high - observation.low <= most * Math.max(high - low, Math.abs(low), Math.abs(high))) {
    return [observation.low, observation.high];
  }
  return [low, high];
}

/** A bar around zero, with its number. */
class SignedBar {
  constructor(label, [low, high]) {
    this.low = Math.min(0, low);
    this.span = Math.max(0, high) - this.low || 1;
    this.zero = -this.low / this.span;
    this.fill = element("span", { class: "fill" });
    this.number = element("span", { class: "bar-number" });
    const track = element("span", { class: "track", "aria-hidden": "true" }, this.fill);
    if (this.zero > 0) {
      const zero = element("span", { class: "zero" });
      zero.style.left = `${100 * this.zero}%`;
      track.append(zero);
    }
    const name = element("span", { class: "bar-label", text: label, title: label });
    this.root = element("li", { class: "bar-row" }, name, track, this.number);
  }

  update(value) {
    const place = Math.max(0, Math.min(1, (value - this.low) / this.span)) || 0;
    this.fill.style.left = `${100 * Math.min(place, this.zero)}%`;
    this.fill.style.width = `${Number.isNaN(value) ? 0 : 100 * Math.abs(place - this.zero)}%`;
    this.fill.classList.toggle("is-negative", value < 0);
    setText(this.number, formatNumber(value));
  }
}

function labelsOf(observation, count) {
  return observation.labels?.length === count ? observation.labels : Array.from({ length: count }, (_, i) => String(i));
}

class BarsDrawing {
  constructor(observation) {
    this.size = "narrow";
    this.values = observation.values;
    const labels = observation.kind === "scalar" ? ["value"] : labelsOf(observation, this.values.width);
    // normalised numbers have one scale
    this.bars = labels.map((label, i) => new SignedBar(label, rangeOf(observation, observation.unit ? null : i)));
    this.root = element("ul", { class: "bars" }, ...this.bars.map((bar) => bar.root));
  }

  update(row) {
    const values = this.values.row(row);
    this.bars.forEach((bar, i) => bar.update(values[i]));
  }
}

/** Numbers that are written out when somebody opens them. */
class Numbers {
  constructor(observation, columns = null) {
    this.observation = observation;
    this.grid = element("div", { class: columns ? "numbers numbers-table" : "numbers" });
    if (columns) this.grid.style.gridTemplateColumns = `repeat(${columns}, max-content)`;
    const total = observation.values.width;
    const title = total > NUMBERS ? `The first ${NUMBERS} of ${counted(total, "number")}` : counted(total, "number");
    this.root = element("details", { ontoggle: () => this.write() }, element("summary", { text: title }), this.grid);
    this.labels = observation.labels?.length === total ? observation.labels : null;
    this.row = 0;
  }

  update(row) {
    this.row = row;
    this.write();
  }

  write() {
    if (!this.root.open) return;
    const values = this.observation.values.row(this.row);
    const count = Math.min(values.length, NUMBERS);
    while (this.grid.childElementCount < count) this.grid.append(element("span"));
    for (let i = 0; i < count; i += 1) {
      const text = formatNumber(values[i]);
      setText(this.grid.children[i], this.labels ? `${this.labels[i]}: ${text}` : text);
    }
  }
}

/** What the pointer is on, as text. */
function readout(canvas, text, describe) {
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    setText(text, describe((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height));
  });
  canvas.addEventListener("pointerleave", () => setText(text, ""));
}

class ColumnsDrawing {
  constructor(name, observation) {
    this.size = "wide";
    this.observation = observation;
    this.range = rangeOf(observation);
    this.row = 0;
    const label = `Numbers of ${name} as columns; they are written out below`;
    this.canvas = element("canvas", { class: "columns", role: "img", "aria-label": label });
    this.numbers = new Numbers(observation);
    const text = element("span");
    const { width } = observation.values;
    const labels = observation.labels?.length === width ? observation.labels : null;
    readout(this.canvas, text, (x) => {
      const index = Math.max(0, Math.min(width - 1, Math.floor(x * width)));
      return `${labels ? labels[index] : `[${index}]`} ${formatNumber(observation.values.row(this.row)[index])}`;
    });
    const [low, high] = this.range.map(formatShort);
    const legend = element("p", { class: "legend" }, element("span", { text: `${low} to ${high}` }), text);
    this.root = element("div", {}, this.canvas, legend, this.numbers.root);
  }

  update(row) {
    this.row = row;
    drawColumns(this.canvas, this.observation.values.row(row), this.range);
    this.numbers.update(row);
  }
}

/** The range of each column of a table whose columns differ much; null for other matrices, which have one range. */
function rangesOfColumns({ values }, columns) {
  if (columns < 2 || columns > TABLE_COLUMNS) return null;
  const ranges = Array.from({ length: columns }, () => [Infinity, -Infinity]);
  for (let i = 0; i < values.values.length; i += 1) {
    const value = values.values[i];
    if (!Number.isFinite(value)) continue;
    const range = ranges[i % columns];
    if (value < range[0]) range[0] = value;
    if (value > range[1]) range[1] = value;
  }
  const spans = ranges.map(([low, high]) => high - low).filter((span) => span > 0);
  return Math.max(...spans) > UNLIKE * Math.min(...spans) ? ranges : null;
}

/** Matrices and sets as cells; further dimensions as several matrices. */
class MatrixDrawing {
  constructor(name, observation) {
    const { shape, values } = observation;
    this.observation = observation;
    this.row = 0;
    [this.rows, this.columns] = shape.slice(-2);
    this.cells = this.rows * this.columns;
    this.ranges = rangesOfColumns(observation, this.columns);
    const range = rangeOf(observation, null, 3);
    const [low, high] = this.ranges ? ["min", "max of the column"] : range.map(formatShort);
    this.ranges ??= Array(this.columns).fill(range);
    this.isOnSide = this.rows > 24 && this.rows > 2 * this.columns;
    const [across, down] = this.isOnSide ? [this.rows, this.columns] : [this.columns, this.rows];
    this.size = across > 24 || shape.length > 2 ? "wide" : "narrow";
    const label = `${name} as a heat map of ${this.rows} rows and ${this.columns} columns; its numbers are written out below`;
    const text = element("span");
    const slices = this.cells ? values.width / this.cells : 0;
    const room = 480 / Math.max(1, Math.min(3, slices));
    this.canvases = Array.from({ length: slices }, (_, slice) => {
      const canvas = element("canvas", { class: "heat", role: "img", "aria-label": label });
      const cell = Math.min(22, Math.max(2, Math.min(Math.floor(room / across), Math.floor(260 / down))));
      canvas.style.width = `${cell * across}px`;
      canvas.style.height = `${Math.max(cell, Math.min(14, Math.floor(120 / down))) * down}px`;
      readout(canvas, text, (x, y) => this.describe(slice, x, y));
      return canvas;
    });
    this.numbers = new Numbers(observation, this.columns <= 16 ? this.columns : null);
    const scale = element("span", { class: "heat-scale", "aria-hidden": "true" });
    const [from, to] = [element("span", { text: low }), element("span", { text: high })];
    const legend = element("p", { class: "legend" }, from, scale, to, text);
    if (this.isOnSide) legend.append(element("span", { text: "on its side: rows run to the right" }));
    this.root = element("div", {}, element("div", { class: "heats" }, ...this.canvases), legend, this.numbers.root);
  }

  describe(slice, x, y) {
    const [across, down] = this.isOnSide ? [y, x] : [x, y];
    const row = Math.max(0, Math.min(this.rows - 1, Math.floor(down * this.rows)));
    const column = Math.max(0, Math.min(this.columns - 1, Math.floor(across * this.columns)));
    const value = this.observation.values.row(this.row)[slice * this.cells + row * this.columns + column];
    return `[${this.canvases.length > 1 ? `${slice}, ` : ""}${row}, ${column}] ${formatNumber(value)}`;
  }

  update(row) {
    this.row = row;
    const values = this.observation.values.row(row);
    this.canvases.forEach((canvas, slice) => {
      const part = values.subarray(slice * this.cells, (slice + 1) * this.cells);
      drawHeatMap(canvas, part, [this.rows, this.columns], this.ranges, this.isOnSide);
    });
    this.numbers.update(row);
  }
}

/** Options as chips; the observed one is highlighted. */
class DiscreteDrawing {
  constructor(observation) {
    this.size = "narrow";
    this.observation = observation;
    const [low, high] = rangeOf(observation).map(Math.round);
    this.first = observation.labels ? Math.round(observation.low ?? 0) : Math.round(observation.low ?? low);
    const last = observation.labels ? this.first + observation.labels.length - 1 : Math.round(observation.high ?? high);
    this.count = Math.max(1, last - this.first + 1);
    this.text = element("p", { class: "summary" });
    this.chips = this.count <= CHIPS ? Array.from({ length: this.count }, (_, i) => element("span", { class: "chip", text: this.label(i) })) : [];
    this.root = element("div", {}, this.text, element("div", { class: "chips", "aria-hidden": "true" }, ...this.chips));
  }

  label(index) {
    return this.observation.labels?.[index] ?? String(this.first + index);
  }

  update(row) {
    const index = Math.round(this.observation.values.row(row)[0]) - this.first;
    setText(this.text, `${this.label(index)}, one of ${counted(this.count, "option")}`);
    this.chips.forEach((chip, i) => chip.classList.toggle("is-chosen", i === index));
  }
}

/** Options that are allowed, and hatched ones that are not. */
class MaskDrawing {
  constructor(observation) {
    this.size = "narrow";
    this.observation = observation;
    const total = observation.values.width;
    const labels = labelsOf(observation, total);
    this.text = element("p", { class: "summary" });
    this.cells = labels.slice(0, NUMBERS).map((label) => element("span", { class: "cell", title: label }));
    this.root = element("div", {}, this.text, element("div", { class: total > 48 ? "cells cells-small" : "cells", "aria-hidden": "true" }, ...this.cells));
  }

  update(row) {
    const values = this.observation.values.row(row);
    const open = values.reduce((sum, value) => sum + (value ? 1 : 0), 0);
    setText(this.text, `${formatNumber(open)} of ${formatNumber(values.length)} allowed`);
    this.cells.forEach((cell, i) => cell.classList.toggle("is-masked", !values[i]));
  }
}
