// What stands beside the sample while labeling: the speed, the decision that undo would take back, and notes about all samples.

import { swatch } from "./classes.js";
import { byId, make } from "./dom.js";
import { amountOf } from "./format.js";
import { isLabeled, namesOf, numbersOf } from "./labels.js";
import { parts, text } from "./text.js";

const MAX_PAUSES = 20;
const MIN_PAUSES = 3;
const BREAK_S = 60; // a longer pause does not count

// Labeling speed and remaining time, from the median of the last pauses between labels, without breaks.
export class Pace {
  constructor(pauses) {
    this.pauses = pauses.filter((pause) => pause < BREAK_S);
    this.last = null;
  }

  // To be called after each label.
  labeled() {
    const now = performance.now() / 1000;
    if (this.last !== null && now - this.last < BREAK_S) this.pauses.push(now - this.last);
    this.pauses = this.pauses.slice(-MAX_PAUSES);
    this.last = now;
  }

  // Speed, and time for the samples that are left.
  text(left) {
    if (this.pauses.length < MIN_PAUSES || left === 0) return "";
    const sorted = [...this.pauses].sort((a, b) => a - b);
    const pause = Math.max(sorted[sorted.length >> 1], 0.01);
    return text("label.pace", { speed: Math.max(1, Math.round(60 / pause)), time: roughTime(pause * left) });
  }
}

function roughTime(seconds) {
  if (seconds < 50) return text("label.under_a_minute");
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return amountOf(Math.max(1, minutes), "minute", "short");
  return `${amountOf(Math.floor(minutes / 60), "hour", "short")} ${amountOf(minutes % 60, "minute", "short")}`;
}

const MOST_MADE = 50; // decisions that are remembered
const LETTERS = 60; // of a text
const SIDE_PX = 72; // of a small picture
const AFTERWARDS_MS = 60;

// The decision that undo would take back, with a small view of its sample.
export class LastDecision {
  constructor(state) {
    this.state = state;
    this.made = [];
  }

  // To be called after each decision. shown: the element of its sample, if this page shows it
  add(result, shown) {
    const before = this.made.at(-1);
    if (before !== undefined) before.shown = null; // if its view was not made in time, it is loaded
    this.made.push({ position: result.position, action: result.action, label: result.label, shown, view: null });
    this.made = this.made.slice(-MOST_MADE);
    this.update();
  }

  // To be called after an undo.
  takeBack() {
    this.made.pop();
    this.update();
  }

  // Shown when the next sample is on the screen, which must not wait for it; nor must who presses the next key at once.
  update() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.show(), AFTERWARDS_MS);
  }

  show() {
    const last = this.made.at(-1);
    if (last === undefined) {
      byId("last").replaceChildren();
      byId("undo").classList.add("empty");
      return;
    }
    if (last.shown !== null) [last.view, last.shown] = [viewOf(last.shown), null];
    const { classes } = this.state;
    byId("undo").classList.remove("empty");
    const isLabel = last.action === "label";
    const words = isLabel ? wordsOf(last.label, classes) : text(`label.last_action.${last.action}`);
    byId("last").replaceChildren(...[last.view ?? this.thumbnail(last.position), ...(isLabel ? numbersOf(last.label).map((number) => swatch(number, classes)) : []),
      make("span", { class: "words", dir: "auto" }, words)].filter((child) => child !== null));
  }

  thumbnail(at) {
    return this.state.kind === "picture" ? make("img", { src: `thumbs/${this.state.edition}/${at}`, alt: "" }) : null;
  }
}

// Of several classes the names alone: they need the space.
function wordsOf(label, classes) {
  const name = namesOf(label, classes);
  return numbersOf(label).length > 1 ? name : text("label.last", { name });
}

// A small copy of what was shown; of a picture it is drawn from the one that is in memory, not loaded again.
function viewOf(shown) {
  if (!(shown instanceof HTMLImageElement)) return make("span", { class: "excerpt", dir: "auto" }, shown.textContent.slice(0, LETTERS));
  const canvas = make("canvas", { width: SIDE_PX, height: SIDE_PX });
  const scale = SIDE_PX / Math.max(shown.naturalWidth, shown.naturalHeight);
  const [width, height] = [shown.naturalWidth * scale, shown.naturalHeight * scale];
  canvas.getContext("2d").drawImage(shown, (SIDE_PX - width) / 2, (SIDE_PX - height) / 2, width, height);
  return canvas;
}

const MOST_REASONS = 200; // reasons that are listed

export function listUnreadable(state, queue) {
  const reasons = [...state.problems, ...queue.unreadable.values()];
  const details = byId("unreadable");
  details.hidden = reasons.length === 0;
  details.querySelector("summary").textContent = text("label.unreadable", { count: reasons.length });
  details.querySelector("ul").replaceChildren(...reasons.slice(0, MOST_REASONS).map((reason) => make("li", {}, ...parts(reason))));
}

// Say that there are labels of classes that are not asked for, as long as no other decision has replaced them.
export function tellOtherClasses(state, queue) {
  const names = [];
  let count = 0;
  const skipped = queue.skippedSet();
  for (const [name, positions] of Object.entries(state.other_classes)) {
    const left = positions.filter((at) => !isLabeled(queue.labels[at]) && !skipped.has(at)).length;
    if (left > 0) names.push(name);
    count += left;
  }
  byId("other-classes").hidden = count === 0;
  byId("other-classes").textContent = text("label.other_classes", { count, names: names.slice(0, 5).join(", ") });
}
