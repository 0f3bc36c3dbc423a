// Pay against test loss: the line that the server computed, where the job is expected to end, and some points on it.

import { draw } from "./dom.js";
import { loss, number } from "./format.js";

const HEIGHT = 320;
const EDGE = { top: 44, right: 16, bottom: 46, left: 64 }; // at the top there is room for names
const LABEL_STEP = 19;
const LETTER = 7; // a letter's width, about

const watched = new WeakMap(); // an observer per place

// shown: {curve: [[loss, pay]], band: [from, to] or null, points: [{loss, pay, name, key}], words, unit}
export function plot(place, shown) {
  const redraw = () => place.replaceChildren(picture(Math.max(280, place.clientWidth), shown));
  watched.get(place)?.disconnect();
  watched.set(place, new ResizeObserver(redraw));
  watched.get(place).observe(place);
  redraw();
}

function picture(width, shown) {
  const from = shown.curve[0][0];
  const to = shown.curve[shown.curve.length - 1][0];
  const pays = shown.curve.map(([, pay]) => pay);
  const low = Math.min(0, ...pays);
  const high = Math.max(0, ...pays);
  const x = (value) => EDGE.left + ((value - from) / (to - from || 1)) * (width - EDGE.left - EDGE.right);
  const y = (value) => EDGE.top + ((high - value) / (high - low || 1)) * (HEIGHT - EDGE.top - EDGE.bottom);
  const frame = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: HEIGHT - EDGE.bottom };
  return draw("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": shown.words },
    shown.band && draw("rect", { class: "band", x: x(shown.band[0]), y: frame.top,
      width: x(shown.band[1]) - x(shown.band[0]), height: frame.bottom - frame.top }),
    ...payAxis(low, high, y, frame, shown.unit),
    ...lossAxis(from, to, x, frame, width),
    draw("line", { class: "zero", x1: frame.left, x2: frame.right, y1: y(0), y2: y(0) }),
    draw("polyline", { class: "pay", points: shown.curve.map(([value, pay]) => `${x(value)},${y(pay)}`).join(" ") }),
    ...named(shown.points, x, y, frame));
}

// Names stand in the free corner above the falling line, one below the other, tied to their dots; below it where there
// is no room.
function named(points, x, y, frame) {
  const sorted = [...points].sort((a, b) => b.loss - a.loss);
  const drawn = [];
  let last = Infinity;
  sorted.forEach((point) => {
    const [px, py] = [x(point.loss), y(point.pay)];
    const right = px + 16 + LETTER * point.name.length < frame.right + EDGE.right;
    const above = Math.max(10, Math.min(py - 22, last - LABEL_STEP));
    const level = right ? above : Math.min(py + 24, frame.bottom - 8);
    if (right) last = above;
    const tx = right ? px + 16 : px - 16;
    const kind = point.key ? " key" : "";
    drawn.push(draw("path", { class: "lead", d: `M${px},${py} L${tx + (right ? -4 : 4)},${level}` }));
    drawn.push(draw("circle", { class: `dot${kind}`, cx: px, cy: py, r: point.key ? 6 : 5 }));
    drawn.push(draw("text", { class: `name${kind}`, x: tx, y: level + 4, "text-anchor": right ? "start" : "end" }, point.name));
  });
  return drawn;
}

function payAxis(low, high, y, frame, unit) {
  const marks = ticks(low, high, 5).flatMap((value) => [
    draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: y(value), y2: y(value) }),
    draw("text", { x: frame.left - 8, y: y(value) + 4, "text-anchor": "end" }, number(value, 0)),
  ]);
  return [...marks, draw("text", { x: frame.left - 8, y: frame.top - 14, "text-anchor": "end" }, unit)];
}

function lossAxis(from, to, x, frame, width) {
  const marks = ticks(from, to, width < 480 ? 4 : 6).map((value) =>
    draw("text", { x: x(value), y: frame.bottom + 18, "text-anchor": "middle" }, loss(value).replace(/0+$/, "").replace(/\.$/, "")));
  const name = draw("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 40, "text-anchor": "middle" }, "test loss");
  return [...marks, name];
}

function ticks(from, to, count) {
  const rough = (to - from) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= rough);
  const found = [];
  for (let value = Math.ceil(from / step) * step; value <= to + step * 1e-9; value += step) found.push(value);
  return found;
}
