// The plot of pay by a loss: the curve, the range of expected losses, the loss above which one is stopped, and named points.

import { draw } from "./dom.js";
import { linePlot } from "./plot.js";
import { text } from "./text.js";

const EDGE = { top: 44, right: 16, bottom: 46, left: 64 }; // in pixels; the top has space for names
const HEIGHT = 320;
const NAME_STEP = 19;
const LETTER = 7; // approximate width of a letter in pixels

// data: {curve: [[loss, pay]], band: [from, to] or null, limit: loss or null, points: [{loss, pay, name, key}],
//   axes: {loss, pay}, words}
//   limit: above it one is stopped; key: whether the point is emphasized; axes: the title of the losses and the currency;
//   words: for screen readers; name and axes.loss are keys of strings
export function payPlot(container, { curve, band, limit, points, axes, words }) {
  const pays = curve.map(([, pay]) => pay);
  linePlot(container, {
    lines: [{ points: curve, kind: "pay" }], across: { y: 0, name: "" }, height: HEIGHT, edge: EDGE, words,
    x: { from: curve[0][0], to: curve[curve.length - 1][0], places: 4, fewest: 0, ticks: 6 },
    y: { from: Math.min(0, ...pays), to: Math.max(0, ...pays), places: 0, ticks: 5 },
    under: (scale) => [...expectedBand(band, scale), ...limitLine(limit, scale)],
    over: (scale) => [...titles(axes, scale), ...namedPoints(points, scale)],
  });
}

function titles(axes, { frame }) {
  return [draw("text", { x: frame.left - 8, y: frame.top - 14, "text-anchor": "end" }, axes.pay),
    draw("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, text(axes.loss))];
}

function expectedBand(band, { frame, px }) {
  if (band === null) return [];
  const [from, to] = band.map(px);
  return [draw("rect", { class: "band", x: from, y: frame.top, width: to - from, height: frame.bottom - frame.top })];
}

function limitLine(limit, { frame, px }) {
  if (limit === null) return [];
  const at = px(limit);
  return [draw("line", { class: "limit", x1: at, x2: at, y1: frame.top, y2: frame.bottom }),
    draw("text", { x: at, y: frame.top - 8, "text-anchor": at > frame.right - 60 ? "end" : "middle" }, text("plot.stopped_above"))];
}

// Names are above and right of their points, one below the other, with a line to the point; a name that would leave the
// frame is below and left of its point.
function namedPoints(points, { frame, px, py }) {
  let last = Infinity;
  return [...points].sort((a, b) => b.loss - a.loss).flatMap((point) => {
    const name = text(point.name);
    const [x, y] = [px(point.loss), py(point.pay)];
    const right = x + 16 + LETTER * name.length < frame.right + EDGE.right;
    const above = Math.max(10, Math.min(y - 22, last - NAME_STEP));
    const level = right ? above : Math.min(y + 24, frame.bottom - 8);
    if (right) last = above;
    const at = right ? x + 16 : x - 16;
    const kind = point.key ? " key" : "";
    return [draw("path", { class: "lead", d: `M${x},${y} L${at + (right ? -4 : 4)},${level}` }),
      draw("circle", { class: `dot${kind}`, cx: x, cy: y, r: point.key ? 6 : 5 }),
      draw("text", { class: `name${kind}`, x: at, y: level + 4, "text-anchor": right ? "start" : "end" }, name)];
  });
}
