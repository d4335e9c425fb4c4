// Decisions: probabilities of the options of each action head, densities, taken and most likely actions.

const LISTED = 20; // options that are listed one by one; more are drawn as columns above the likeliest
const LIKELIEST = 6;
const CURVES = 12;

/** The heads of one step key; `update` shows one row of them. */
class DecisionView {
  constructor(heads) {
    this.views = [...heads].map(([name, head]) => makeHeadView(name, head));
    this.root = element("div", { class: "heads" }, ...this.views.map((view) => view.root));
    if (!this.views.length) this.root.append(element("p", { class: "muted", text: "No decision was recorded." }));
  }

  update(row) {
    for (const view of this.views) view.update(row);
  }
}

function makeHeadView(name, head) {
  if (head.kind === "continuous") return new ContinuousView(name, head);
  if (head.sizes.length && (head.probabilities || head.allowed || head.kind === "categorical")) {
    return new OptionsView(name, head);
  }
  return new NumbersOfHeadView(name, head);
}

/** The labels of the options of each part: their numbers, and their texts if there are any; bits are one part. */
function optionLabels(head) {
  if (head.kind === "bernoulli") return [head.sizes.map((_, bit) => head.labels?.[bit] ?? `bit ${bit}`)];
  const isNamed = head.labels?.length === head.sizes.reduce((sum, size) => sum + size, 0);
  let first = 0;
  return head.sizes.map((size) => {
    const names = isNamed ? head.labels.slice(first, first + size) : null;
    first += size;
    return Array.from({ length: size }, (_, option) => (names ? `${option}  ${names[option]}` : String(option)));
  });
}

/** The options that were chosen, one for each part, by their labels. */
function chosenLabels(labels, actions) {
  return [...actions].map((option, part) => labels[part]?.[option] ?? String(option)).join(", ");
}

/** Categorical and multi-categorical heads, with a group of options for each part; Bernoulli heads, with one for all bits. */
class OptionsView {
  constructor(name, head) {
    this.head = head;
    this.hasBits = head.kind === "bernoulli";
    this.summary = element("p", { class: "summary" });
    this.root = element("section", { class: "head" }, element("h4", { text: name }), this.summary);
    this.root.classList.toggle("is-bare", !head.probabilities);
    this.labels = optionLabels(head);
    this.parts = this.labels.map((labels, part) => {
      const view = new PartView(head, labels);
      if (this.labels.length > 1) this.root.append(element("h5", { text: `part ${part + 1} of ${this.labels.length}` }));
      this.root.append(view.root);
      return view;
    });
  }

  update(row) {
    const { head } = this;
    const action = head.action.row(row);
    const likely = head.most_likely ? head.most_likely.row(row) : null;
    const probabilities = head.probabilities ? head.probabilities.row(row) : null;
    const allowed = head.allowed ? head.allowed.row(row) : null;
    if (this.hasBits) {
      const isSet = (bits) => (option) => bits !== null && bits[option] === 1;
      this.parts[0].update(ofSetBits(probabilities), ofSetBits(allowed), isSet(action), isSet(likely));
    } else {
      let first = 0;
      this.parts.forEach((view, part) => {
        const end = first + head.sizes[part];
        const is = (actions) => (option) => actions !== null && actions[part] === option;
        const [shares, open] = [probabilities, allowed].map((array) => array && array.subarray(first, end));
        view.update(shares, open, is(action), is(likely));
        first = end;
      });
    }
    setText(this.summary, this.sentence(action, likely, probabilities, allowed));
  }

  sentence(action, likely, probabilities, allowed) {
    const { head } = this;
    const describe = (actions) => {
      if (this.hasBits) return [...actions].join(", ");
      const share = probabilities && head.sizes.length === 1 ? ` (${formatShare(probabilities[actions[0]])})` : "";
      return chosenLabels(this.labels, actions) + share;
    };
    const parts = [`Taken ${describe(action)}`];
    if (likely) parts.push(`most likely ${describe(likely)}`);
    if (!probabilities) parts.push("no probabilities");
    if (allowed) {
      const open = allowed.reduce((sum, isAllowed) => sum + (isAllowed ? 1 : 0), 0);
      if (open < allowed.length) parts.push(`${formatNumber(open)} of ${counted(allowed.length, "option")} allowed`);
    }
    return parts.join(" · ");
  }
}

/** Of two options for each bit, those that set it. */
function ofSetBits(options) {
  return options && options.filter((_, column) => column % 2 === 1);
}

/** The options of one part: all of them as a list, or columns with the likeliest below. */
class PartView {
  constructor(head, labels) {
    const size = labels.length;
    Object.assign(this, { head, labels, size });
    this.isLong = size > LISTED;
    this.list = element("ul", { class: "options" });
    this.rows = Array.from({ length: this.isLong ? LIKELIEST + 2 : size }, () => new OptionRow());
    this.list.append(...this.rows.map((row) => row.root));
    this.root = element("div", { class: "part" });
    if (this.isLong) {
      const label = `Probabilities of ${counted(size, "option")}; the likeliest are listed below`;
      this.canvas = element("canvas", { class: "columns", role: "img", "aria-label": label });
      this.all = element("div", { class: "numbers" });
      this.details = element("details", { ontoggle: () => this.updateAll() });
      this.details.append(element("summary", { text: `All ${counted(size, "option")}` }), this.all);
      this.root.append(this.canvas, this.list, this.details);
    } else this.root.append(this.list);
  }

  update(probabilities, allowed, chosen, likely) {
    this.probabilities = probabilities;
    this.allowed = allowed;
    let options = this.rows.map((_, option) => option);
    if (this.isLong) {
      options = this.likeliest(chosen, likely);
      this.updateAll();
      this.draw(options, chosen, likely);
    }
    this.rows.forEach((row, i) => {
      setHidden(row.root, i >= options.length);
      if (i >= options.length) return;
      const option = options[i];
      row.update({
        label: this.labels[option],
        share: this.probabilities ? this.probabilities[option] : NaN,
        isMasked: this.allowed !== null && !this.allowed[option],
        isChosen: chosen(option),
        isLikely: likely(option),
      });
    });
  }

  likeliest(chosen, likely) {
    const kept = [];
    for (let option = 0; option < this.size; option += 1) if (chosen(option) || likely(option)) kept.push(option);
    const options = new Set(kept.slice(0, this.rows.length));
    const best = [];
    for (let option = 0; option < this.size && this.probabilities; option += 1) {
      const share = this.probabilities[option];
      if (this.allowed && !this.allowed[option]) continue;
      if (best.length === LIKELIEST && share <= this.probabilities[best[LIKELIEST - 1]]) continue;
      let place = best.length;
      while (place > 0 && this.probabilities[best[place - 1]] < share) place -= 1;
      best.splice(place, 0, option);
      if (best.length > LIKELIEST) best.pop();
    }
    for (const option of best) if (options.size < this.rows.length) options.add(option);
    const share = (option) => (this.probabilities ? this.probabilities[option] : 0);
    return [...options].sort((a, b) => share(b) - share(a) || a - b);
  }

  draw(options, chosen, likely) {
    if (!this.probabilities && !this.allowed) return;
    const values = this.probabilities ?? new Float32Array(this.size);
    let peak = 0;
    for (const share of values) if (share > peak) peak = share;
    const one = this.head.kind !== "bernoulli";
    const marks = { chosen: one ? options.find(chosen) ?? -1 : -1, likely: one ? options.find(likely) ?? -1 : -1 };
    drawColumns(this.canvas, values, [0, peak || 1], { allowed: this.allowed, ...marks });
  }

  updateAll() {
    if (!this.details?.open || !(this.probabilities || this.allowed)) return;
    while (this.all.childElementCount < this.size) this.all.append(element("span"));
    for (let option = 0; option < this.size; option += 1) {
      const masked = this.allowed && !this.allowed[option];
      const share = this.probabilities ? formatShare(this.probabilities[option]) : "";
      setText(this.all.children[option], `${this.labels[option]}: ${masked ? "masked" : share || "allowed"}`);
    }
  }
}

class OptionRow {
  constructor() {
    this.label = element("span", { class: "option-label" });
    this.fill = element("span", { class: "fill" });
    this.share = element("span", { class: "option-share" });
    this.tags = element("span", { class: "option-tags" });
    const bar = element("span", { class: "track", "aria-hidden": "true" }, this.fill);
    this.root = element("li", { class: "option" }, this.label, bar, this.share, this.tags);
    this.state = null;
  }

  update({ label, share, isMasked, isChosen, isLikely }) {
    setText(this.label, label);
    this.label.title = label;
    setText(this.share, (isMasked && !(share > 0)) || Number.isNaN(share) ? "" : formatShare(share));
    this.fill.style.width = `${Number.isNaN(share) ? 0 : 100 * Math.min(share, 1)}%`;
    const state = `${isMasked}${isChosen}${isLikely}`;
    if (state === this.state) return;
    this.state = state;
    this.root.classList.toggle("is-masked", isMasked);
    this.root.classList.toggle("is-chosen", isChosen);
    this.tags.replaceChildren();
    if (isChosen) this.tags.append(element("span", { class: "tag tag-chosen", text: "▼ taken" }));
    if (isLikely) this.tags.append(element("span", { class: "tag", text: "▽ most likely" }));
    if (isMasked) this.tags.append(element("span", { class: "tag tag-masked", text: "masked" }));
  }
}

/** Continuous heads: for each coordinate its density over the range of actions. */
class ContinuousView {
  constructor(name, head) {
    this.head = head;
    const width = head.action.width;
    const heading = element("h4", { text: name });
    if (head.family) heading.append(element("span", { class: "muted", text: `  ${head.family}` }));
    this.root = element("section", { class: "head" }, heading);
    this.curves = Array.from({ length: Math.min(width, CURVES) }, (_, i) => this.makeCurve(i));
    this.root.append(...this.curves.map((curve) => curve.root));
    if (width > CURVES) {
      this.rest = element("p", { class: "numbers-line" });
      this.root.append(element("h5", { text: `the other ${width - CURVES} coordinates` }), this.rest);
    }
  }

  makeCurve(coordinate) {
    const { head } = this;
    const label = head.labels?.length === head.action.width ? head.labels[coordinate] : `coordinate ${coordinate}`;
    const text = element("p", { class: "summary" });
    const canvas = element("canvas", { class: "density", role: "img" });
    const [low, high] = [element("span"), element("span")];
    const axis = element("div", { class: "axis", "aria-hidden": "true" }, low, high);
    const root = element("div", { class: "curve" }, text, canvas, axis);
    return { root, label, text, canvas, low, high, coordinate, range: this.rangeOf(coordinate) };
  }

  /** The range of a coordinate: its bounds, or what the densities and actions of the episode cover. */
  rangeOf(coordinate) {
    const { head } = this;
    const bounds = [head.low?.[coordinate], head.high?.[coordinate]];
    if (bounds.every((bound) => Number.isFinite(bound))) return bounds;
    const [low, high] = head.action.range(coordinate);
    if (!head.density_x) return [low, high];
    const [first, last] = head.density_x.range();
    return head.action.width === 1 ? [Math.min(low, first), Math.max(high, last)] : [low, high];
  }

  update(row) {
    const { head } = this;
    const action = head.action.row(row);
    const likely = head.most_likely ? head.most_likely.row(row) : null;
    const points = head.density ? head.density.shape[2] : 0;
    for (const curve of this.curves) {
      const i = curve.coordinate;
      const part = (array) => (array ? array.row(row).subarray(i * points, (i + 1) * points) : null);
      const best = likely ? `, most likely ${formatNumber(likely[i])}` : "";
      const [low, high] = curve.range;
      setText(curve.text, `${curve.label}: taken ${formatNumber(action[i])}${best}`);
      curve.canvas.setAttribute("aria-label", `Density of ${curve.text.textContent}`);
      setText(curve.low, formatShort(low));
      setText(curve.high, formatShort(high));
      const [xs, ys] = [part(head.density_x), part(head.density)];
      drawDensity(curve.canvas, { xs, ys: xs && ys, low, high, action: action[i], likely: likely ? likely[i] : null });
    }
    if (this.rest) setText(this.rest, [...action.subarray(CURVES)].map(formatNumber).join("  "));
  }
}

/** Heads of which only the action is known. */
class NumbersOfHeadView {
  constructor(name, head) {
    this.head = head;
    this.labels = head.kind === "multi_categorical" ? optionLabels(head) : null;
    this.text = element("p", { class: "summary" });
    this.root = element("section", { class: "head" }, element("h4", { text: name }), this.text);
  }

  update(row) {
    const text = (array) => {
      const values = array.row(row);
      return this.labels ? chosenLabels(this.labels, values) : [...values].map(formatNumber).join(", ");
    };
    const likely = this.head.most_likely ? ` · most likely ${text(this.head.most_likely)}` : "";
    setText(this.text, `Taken ${text(this.head.action)}${likely}`);
  }
}
