// Drawing on canvases, in the colours of the theme.

const probe = element("span", { hidden: true });
let colours = new Map();

/** A colour of the style sheet as canvases understand it. */
function colour(name) {
  if (!colours.has(name)) {
    if (!probe.isConnected) document.body.append(probe);
    probe.style.color = `var(--${name})`;
    colours.set(name, getComputedStyle(probe).color);
  }
  return colours.get(name);
}

function forgetColours() {
  colours = new Map();
}

/** A context over a canvas that has as many pixels as the screen; coordinates are those of the style sheet. */
function surface(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [columns, rows] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  const context = canvas.getContext("2d");
  context.setTransform(columns / width, 0, 0, rows / height, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Diagonal lines over a rectangle: what is masked, or not there. */
function hatch(context, x, y, width, height, stroke) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.beginPath();
  for (let offset = -height; offset < width; offset += 5) {
    context.moveTo(x + offset, y + height);
    context.lineTo(x + offset + height, y);
  }
  context.strokeStyle = stroke;
  context.lineWidth = 1;
  context.stroke();
  context.restore();
}

/** Columns of numbers around zero. */
function drawColumns(canvas, values, [low, high], { height = 72, allowed = null, chosen = -1, likely = -1 } = {}) {
  const width = canvas.clientWidth || 300;
  const context = surface(canvas, width, height);
  const [bottom, top] = [Math.min(0, low), Math.max(0, high)];
  const span = top - bottom || 1;
  const at = (value) => 1 + (height - 2) * (1 - (value - bottom) / span);
  const step = width / values.length;
  const gap = step > 4 ? 1 : 0;
  if (allowed) hatchMasked(context, allowed, step, height);
  for (let i = 0; i < values.length; i += 1) {
    const y = at(Math.max(bottom, Math.min(top, values[i] || 0)));
    context.fillStyle = colour(i === chosen ? "chosen" : "bar");
    context.fillRect(i * step, Math.min(y, at(0)), Math.max(step - gap, 0.75), Math.max(Math.abs(at(0) - y), 0.75));
  }
  context.fillStyle = colour("line");
  context.fillRect(0, at(0) - 0.5, width, 1);
  const middle = (option) => Math.max(7, Math.min(width - 7, (option + 0.5) * step));
  if (likely >= 0 && likely !== chosen) drawPointer(context, middle(likely), colour("ink"), false);
  if (chosen >= 0) drawPointer(context, middle(chosen), colour("chosen"), true);
}

/** Hatch columns that are masked, neighbours together. */
function hatchMasked(context, allowed, step, height) {
  let first = -1;
  for (let i = 0; i <= allowed.length; i += 1) {
    const isMasked = i < allowed.length && !allowed[i];
    if (isMasked && first < 0) first = i;
    if (isMasked || first < 0) continue;
    hatch(context, first * step, 0, (i - first) * step, height, colour("hatch"));
    first = -1;
  }
}

/** A triangle at the upper edge: full for the action, empty for the most likely one. */
function drawPointer(context, x, paint, full) {
  context.beginPath();
  context.moveTo(x - 5, 1);
  context.lineTo(x + 5, 1);
  context.lineTo(x, 9);
  context.closePath();
  context.fillStyle = full ? paint : colour("card");
  context.strokeStyle = paint;
  context.lineWidth = 1.5;
  context.fill();
  context.stroke();
}

/** A density over its range, with the action and the most likely one. */
function drawDensity(canvas, { xs, ys, low, high, action, likely, height = 84 }) {
  const width = canvas.clientWidth || 300;
  const context = surface(canvas, width, height);
  const place = (value) => 6 + ((width - 12) * (value - low)) / (high - low || 1);
  const at = (value) => place(Math.max(low, Math.min(high, value)));
  const base = height - 2;
  if (ys) {
    let peak = 0;
    for (const y of ys) if (Number.isFinite(y)) peak = Math.max(peak, y);
    const up = (y) => base - (Number.isFinite(y) ? Math.max(y, 0) : peak) * ((base - 14) / (peak || 1));
    context.save();
    context.beginPath();
    context.rect(6, 0, width - 12, height); // a density may reach beyond the range of actions
    context.clip();
    context.beginPath();
    context.moveTo(place(xs[0]), base);
    for (let i = 0; i < xs.length; i += 1) context.lineTo(place(xs[i]), up(ys[i]));
    context.lineTo(place(xs[xs.length - 1]), base);
    context.fillStyle = colour("bar-soft");
    context.fill();
    context.strokeStyle = colour("bar");
    context.lineWidth = 1.5;
    context.stroke();
    context.restore();
  }
  context.fillStyle = colour("line");
  context.fillRect(0, base, width, 1);
  if (likely !== null) {
    context.setLineDash([3, 3]);
    drawUpright(context, at(likely), height, colour("ink"));
    context.setLineDash([]);
    drawPointer(context, at(likely), colour("ink"), false);
  }
  drawUpright(context, at(action), height, colour("chosen"));
  drawPointer(context, at(action), colour("chosen"), true);
}

function drawUpright(context, x, height, paint) {
  context.beginPath();
  context.moveTo(x, 2);
  context.lineTo(x, height - 2);
  context.strokeStyle = paint;
  context.lineWidth = 1.5;
  context.stroke();
}

// From dark to light through blue, green and yellow: ordered by lightness, so that it can be read without colours.
const HEAT = [
  [36, 24, 74],
  [45, 72, 132],
  [32, 118, 138],
  [45, 160, 120],
  [140, 196, 82],
  [248, 226, 96],
];

function heatColour(share) {
  const place = Math.max(0, Math.min(1, share)) * (HEAT.length - 1);
  const index = Math.min(Math.floor(place), HEAT.length - 2);
  const weight = place - index;
  return HEAT[index].map((from, i) => Math.round(from + (HEAT[index + 1][i] - from) * weight));
}

/**
 * A matrix as cells: one pixel of the canvas each, enlarged by the style sheet; a long one lies on its side.
 * `ranges` has the numbers of the darkest and the lightest colour of each column.
 */
function drawHeatMap(canvas, values, [rows, columns], ranges, isOnSide) {
  const [across, down] = isOnSide ? [rows, columns] : [columns, rows];
  if (canvas.width !== across) canvas.width = across;
  if (canvas.height !== down) canvas.height = down;
  const context = canvas.getContext("2d");
  const image = context.createImageData(across, down);
  for (let i = 0; i < values.length; i += 1) {
    const [low, high] = ranges[i % columns];
    const span = high - low || 1;
    const missing = Number.isNaN(values[i]);
    const [red, green, blue] = heatColour((values[i] - low) / span);
    const place = isOnSide ? (i % columns) * rows + Math.floor(i / columns) : i;
    image.data.set([red, green, blue, missing ? 0 : 255], 4 * place);
  }
  context.putImageData(image, 0, 0);
}
