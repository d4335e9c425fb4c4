// Elements and texts. Whatever comes out of the document becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; `text` is its text, and names that begin with "on" are listeners. */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Text that may be broken after its dots and underscores. */
function breakable(text) {
  const node = document.createDocumentFragment();
  for (const part of text.split(/(?<=[._])/)) node.append(part, element("wbr"));
  return node;
}

function setHidden(node, hidden) {
  if (node.hidden !== hidden) node.hidden = hidden;
}

/** A card with a heading. */
function card(heading, ...children) {
  return element("section", { class: "card" }, element("h3", { text: heading }), ...children);
}

function button(label, action, attributes = {}) {
  return element("button", { type: "button", text: label, onclick: action, ...attributes });
}

const MINUS = "\u2212";

/** A number for readers: short, with a constant number of decimals per magnitude. */
function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : `${MINUS}∞`;
  const size = Math.abs(value);
  let text;
  if (Number.isInteger(value) && size < 1e9) text = groupDigits(String(size));
  else if (size >= 1e6 || size < 1e-3) text = size.toExponential(2).replace("-", MINUS);
  else if (size >= 1000) text = groupDigits(size.toFixed(1));
  else if (size >= 100) text = size.toFixed(2);
  else if (size >= 1) text = size.toFixed(3);
  else text = size.toFixed(4);
  return value < 0 ? MINUS + text : text;
}

/** A number for labels, where there is little space: three digits that count. */
function formatShort(value) {
  return Number.isInteger(value) ? formatNumber(value) : String(Number(value.toPrecision(3))).replace("-", MINUS);
}

function groupDigits(digits) {
  const [whole, decimals] = digits.split(".");
  const grouped = whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, ",") : whole;
  return decimals === undefined ? grouped : `${grouped}.${decimals}`;
}

function formatShare(share) {
  if (Number.isNaN(share)) return "–";
  if (share > 0 && share < 0.0005) return "<0.1%";
  return `${(100 * share).toFixed(1)}%`;
}

/** "1 act", "2 acts". */
function counted(number, noun) {
  return `${formatNumber(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/** Plain data as one line of text. */
function plainText(value) {
  if (typeof value === "number") return formatNumber(value);
  if (typeof value === "string") return value;
  if (value === null) return "none";
  if (Array.isArray(value)) return `[${value.map(plainText).join(", ")}]`;
  if (typeof value === "object") {
    return Object.entries(value)
      .map(([name, item]) => `${name}=${typeof item === "object" && item !== null ? `(${plainText(item)})` : plainText(item)}`)
      .join("  ");
  }
  return String(value);
}

const SHAPES = [
  "M8 2a6 6 0 1 0 .01 0z",
  "M2.5 2.5h11v11h-11z",
  "M8 1.5l6.5 12h-13z",
  "M8 1l7 7-7 7-7-7z",
  "M1.5 2.5h13l-6.5 12z",
  "M6 1.5h4v4.5h4.5v4h-4.5v4.5h-4v-4.5h-4.5v-4h4.5z",
  "M4.5 1.5h7l3.5 6.5-3.5 6.5h-7l-3.5-6.5z",
  "M8 1l2 5h5l-4 3.3 1.5 5.2-4.5-3-4.5 3 1.5-5.2-4-3.3h5z",
];

/** A picture of one path, 16 units wide and high. */
function drawPath(path, className) {
  const picture = document.createElementNS(SVG, "svg");
  picture.setAttribute("viewBox", "0 0 16 16");
  picture.setAttribute("aria-hidden", "true");
  picture.setAttribute("class", className);
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  picture.append(line);
  return picture;
}

/** The mark of a sub-step: a shape in a colour, both by its number. */
function mark(number) {
  const shape = number % SHAPES.length;
  return drawPath(SHAPES[shape], `mark key-${shape}`);
}

const isTyping = (node) => node instanceof HTMLElement && node.matches("input:not([type=range]), select, textarea");

/** Show a data URI of a picture; anything else is left out. */
function setPicture(image, address, alternative) {
  const source = typeof address === "string" && address.startsWith("data:image/") ? address : "data:,";
  if (image.getAttribute("src") !== source) image.setAttribute("src", source);
  if (image.alt !== alternative) image.alt = alternative;
}
