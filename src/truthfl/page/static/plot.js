// SVG plot of pay by a loss: the curve, the range of expected losses, and labeled points.

import { draw } from "./dom.js";
import { number } from "./format.js";
import { text } from "./text.js";

const HEIGHT = 320;
const EDGE = { top: 44, right: 16, bottom: 46, left: 64 }; // margins in pixels; the top has space for labels
const LABEL_STEP = 19;
const LETTER = 7; // approximate width of a letter in pixels

const observers = new WeakMap(); // by container

// Draw a plot into a container, again whenever its width changes.
// data: {curve: [[loss, pay]], band: [from, to] or null, limit: loss or null, points: [{loss, pay, name, key}],
//   axes: {loss, pay}, words}
//   limit: above it one is stopped; key: whether the point is emphasized; axes: the title of the losses and the currency;
//   words: for screen readers; name and axes.loss are keys of strings
export function plot(container, data) {
  const redraw = () => container.replaceChildren(picture(Math.max(280, container.clientWidth), data));
  observers.get(container)?.disconnect();
  observers.set(container, new ResizeObserver(redraw));
  observers.get(container).observe(container);
  redraw();
}

function picture(width, data) {
  const from = data.curve[0][0];
  const to = data.curve[data.curve.length - 1][0];
  const pays = data.curve.map(([, pay]) => pay);
  const low = Math.min(0, ...pays);
  const high = Math.max(0, ...pays);
  const x = (value) => EDGE.left + ((value - from) / (to - from || 1)) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((high - value) / (high - low || 1)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const frame = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: HEIGHT - EDGE.bottom };
  return draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": data.words },
    data.band && draw("rect", { class: "band", x: x(data.band[0]), y: frame.top,
      width: x(data.band[1]) - x(data.band[0]), height: frame.bottom - frame.top }),
    ...payAxis(low, high, y, frame, data.axes.pay),
    ...lossAxis(from, to, x, frame, width, text(data.axes.loss)),
    ...limitLine(data.limit, x, frame),
    draw("line", { class: "zero", x1: frame.left, x2: frame.right, y1: y(0), y2: y(0) }),
    draw("polyline", { class: "pay", points: data.curve.map(([value, pay]) => `${x(value)},${y(pay)}`).join(" ") }),
    ...labeledPoints(data.points, x, y, frame));
}

// Labels are above and right of their points, one below the other, with a line to the point; a label that would leave
// the frame is below and left of its point.
function labeledPoints(points, x, y, frame) {
  const sorted = [...points].sort((a, b) => b.loss - a.loss);
  const elements = [];
  let last = Infinity;
  sorted.forEach((point) => {
    const name = text(point.name);
    const [px, py] = [x(point.loss), y(point.pay)];
    const right = px + 16 + LETTER * name.length < frame.right + EDGE.right;
    const above = Math.max(10, Math.min(py - 22, last - LABEL_STEP));
    const level = right ? above : Math.min(py + 24, frame.bottom - 8);
    if (right) last = above;
    const tx = right ? px + 16 : px - 16;
    const kind = point.key ? " key" : "";
    elements.push(draw("path", { class: "lead", d: `M${px},${py} L${tx + (right ? -4 : 4)},${level}` }));
    elements.push(draw("circle", { class: `dot${kind}`, cx: px, cy: py, r: point.key ? 6 : 5 }));
    elements.push(draw("text", { class: `name${kind}`, x: tx, y: level + 4, "text-anchor": right ? "start" : "end" }, name));
  });
  return elements;
}

function limitLine(limit, x, frame) {
  if (limit === null) return [];
  const at = x(limit);
  return [draw("line", { class: "limit", x1: at, x2: at, y1: frame.top, y2: frame.bottom }),
    draw("text", { x: at, y: frame.top - 8, "text-anchor": at > frame.right - 60 ? "end" : "middle" }, text("plot.stopped_above"))];
}

function payAxis(low, high, y, frame, unit) {
  const marks = ticks(low, high, 5).flatMap((value) => [
    draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(value), y2: y(value) }),
    draw("text", { x: frame.left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value, 0)),
  ]);
  return [...marks, draw("text", { x: frame.left - 8, y: frame.top - 14, "text-anchor": "end" }, unit)];
}

function lossAxis(from, to, x, frame, width, title) {
  const marks = ticks(from, to, width < 480 ? 4 : 6).map((value) =>
    draw("text", { x: x(value), y: frame.bottom + 18, "text-anchor": "middle" }, number(value, 4, 0)));
  const name = draw("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, title);
  return [...marks, name];
}

// About `count` round numbers between two values.
function ticks(from, to, count) {
  const rough = (to - from) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const values = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) values.push(value);
  return values;
}
