// SVG plots: lines with labeled axes, points and a reference line; horizontal bars.

import { draw } from "./dom.js";
import { number } from "./format.js";

const EDGE = { top: 26, right: 14, bottom: 40, left: 52 }; // margins in pixels
const BAR = { height: 22, name: 96, value: 92 };
const NARROW = 450; // where fewer numbers fit below a plot
const redraws = new WeakMap(); // by container

// Draw by a function of the width into a container, again whenever its width changes.
function keepDrawn(container, picture) {
  if (!redraws.has(container)) {
    new ResizeObserver(() => redraws.get(container)()).observe(container);
  }
  let last = 0;
  const redraw = () => {
    const width = Math.max(260, Math.floor(container.clientWidth));
    if (width === last) return;
    last = width;
    container.replaceChildren(picture(width));
  };
  redraws.set(container, redraw);
  redraw();
}

// data: {lines: [{points: [[x, y]], kind}], points: [{x, y, kind, name}], across: {y, name} or null,
//   x: {from, to, places, fewest, ticks, title}, y: {from, to, places, fewest, ticks, title}, height, edge, words, under, over}
//   kind: CSS class; places, fewest: most and fewest decimals of the axis' numbers; ticks: about how many; words: for screen
//   readers; under, over: functions of {frame, px, py}, in pixels, for elements below and above the lines
export function linePlot(container, data) {
  keepDrawn(container, (width) => lineFigure(width, data));
}

function lineFigure(width, { lines, points = [], across = null, x, y, height, edge = EDGE, words, under = () => [], over = () => [] }) {
  const frame = { left: edge.left, right: width - edge.right, top: edge.top, bottom: height - edge.bottom };
  const px = (value) => frame.left + ((value - x.from) / (x.to - x.from || 1)) * (frame.right - frame.left);
  const py = (value) => frame.bottom - ((value - y.from) / (y.to - y.from || 1)) * (frame.bottom - frame.top);
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words },
    ...under({ frame, px, py }),
    ...ticks(y.from, y.to, y.ticks ?? 4).flatMap((value) => [
      draw("line", { class: "grid", x1: frame.left, x2: frame.right, y1: py(value), y2: py(value) }),
      draw("text", { x: frame.left - 8, y: py(value) + 4, "text-anchor": "end" }, number(value, y.places, y.fewest)),
    ]),
    ...ticks(x.from, x.to, width < NARROW ? 4 : x.ticks ?? 7).map((value) =>
      draw("text", { x: px(value), y: frame.bottom + 18, "text-anchor": "middle" }, number(value, x.places, x.fewest))),
    draw("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }),
    y.title && draw("text", { class: "title", x: 4, y: 13 }, y.title),
    x.title && draw("text", { class: "title", x: frame.right, y: height - 6, "text-anchor": "end" }, x.title),
    ...(across === null ? [] : [
      draw("line", { class: "across", x1: frame.left, x2: frame.right, y1: py(across.y), y2: py(across.y) }),
      draw("text", { class: "halo", x: frame.left + 6, y: py(across.y) - 5 }, across.name)]),
    ...lines.map((line) => line.points.length === 1
      ? draw("circle", { class: `end ${line.kind}`, cx: px(line.points[0][0]), cy: py(line.points[0][1]), r: 3 })
      : draw("polyline", { class: `line ${line.kind}`, points: line.points.map(([a, b]) => `${px(a)},${py(b)}`).join(" ") })),
    ...points.map((point) => draw("circle", { class: `point ${point.kind}`, cx: px(point.x), cy: py(point.y), r: 4.5 },
      draw("title", {}, point.name))),
    ...over({ frame, px, py }));
}

// Horizontal bars. data: {bars: [{name, value, text, marks: [{value, kind}]}], most, words}
export function barPlot(container, data) {
  keepDrawn(container, (width) => barFigure(width, data));
}

function barFigure(width, { bars, most, words }) {
  const height = bars.length * BAR.height + 4;
  const [left, right] = [BAR.name, width - BAR.value];
  const px = (value) => left + (Math.max(0, Math.min(value, most)) / (most || 1)) * (right - left);
  return draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words },
    ...bars.flatMap(({ name, value, text, marks, kind = "" }, row) => {
      const middle = row * BAR.height + BAR.height / 2;
      return [
        draw("text", { class: "label", x: left - 8, y: middle + 4, "text-anchor": "end" }, short(name), draw("title", {}, name)),
        draw("rect", { class: "track", x: left, y: middle - 6, width: right - left, height: 12, rx: 2 }),
        draw("rect", { class: `bar ${kind}`, x: left, y: middle - 6, width: px(value) - left, height: 12, rx: 2 }),
        ...marks.map((mark) => draw("rect", { class: `tick ${mark.kind}`, x: px(mark.value) - 1, y: middle - 8, width: 2.5, height: 16 })),
        draw("text", { class: "value", x: width - 2, y: middle + 4, "text-anchor": "end" }, text),
      ];
    }));
}

function short(name) {
  return name.length > 13 ? `${name.slice(0, 12)}…` : name;
}

// The smallest range of round numbers that holds these values.
export function roundRange(values, from = Infinity, to = -Infinity) {
  const low = Math.min(from, ...values);
  const high = Math.max(to, ...values);
  const step = stepFor(low, high === low ? low + 1 : high, 4);
  return [Math.floor(low / step + 1e-9) * step, Math.ceil((high === low ? low + step : high) / step - 1e-9) * step];
}

// How many decimals the round numbers between two values need.
export function placesFor(from, to) {
  return Math.max(0, -Math.floor(Math.log10(stepFor(from, to, 4)) + 1e-9));
}

function stepFor(from, to, count) {
  const rough = (to - from) / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * (1 - 1e-9));
}

function ticks(from, to, count) {
  const step = stepFor(from, to, count);
  const values = [];
  for (let value = Math.ceil(from / step - 1e-9) * step; value <= to + step * 1e-9; value += step) values.push(value);
  return values;
}
