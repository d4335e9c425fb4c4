// Visible texts whose contrast to what lies behind them is below 4.5:1.

const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });

function painted(colours) {
  for (const colour of colours) {
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
  }
  return [...context.getImageData(0, 0, 1, 1).data].slice(0, 3);
}

function luminance(colours) {
  const linear = (level) => (level <= 0.04045 ? level / 12.92 : ((level + 0.055) / 1.055) ** 2.4);
  const [red, green, blue] = painted(colours).map((level) => linear(level / 255));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function backgrounds(node) {
  return node ? [...backgrounds(node.parentElement), getComputedStyle(node).backgroundColor] : ["#fff"];
}

function contrast(node) {
  const behind = backgrounds(node);
  const levels = [luminance(behind), luminance([...behind, getComputedStyle(node).color])];
  return (Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05);
}

const found = [];
for (const node of document.querySelectorAll("body *")) {
  const hasText = [...node.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim());
  const isRead = hasText && node.getClientRects().length && !node.disabled && !node.closest("dialog, script, option");
  if (isRead && contrast(node) < 4.5) found.push(`${contrast(node).toFixed(2)} ${node.className} ${node.textContent}`);
}
return found;
