// The decision that undo would take back, with a small view of its sample, beside the next sample.

import { swatch } from "./class_colours.js";
import { byId, make } from "./dom.js";
import { namesOf, numbersOf } from "./label_value.js";
import { text } from "./text.js";

const MOST = 50; // decisions that are remembered
const LETTERS = 60; // of a text
const SIDE_PX = 72; // of a small picture
const AFTERWARDS_MS = 60;

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
    this.made = this.made.slice(-MOST);
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
