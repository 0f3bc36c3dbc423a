// Labels that the participant's own model doubts: it runs on their computer, and the page's server asks it.

import { getJson } from "./api.js";
import { percent } from "./format.js";
import { text } from "./text.js";

export class SecondLook {
  constructor(state, queue) {
    Object.assign(this, { state, queue });
    this.doubts = new Map(); // {label, predicted, chance} by position, the most doubtful first
    this.handedIn = false;
  }

  // Ask the server; whether there is a model.
  async load() {
    const answer = await getJson("api/second_look").catch(() => ({ doubts: null }));
    this.handedIn = answer.handed_in === true;
    this.doubts = new Map((answer.doubts ?? []).map(({ position, ...doubt }) => [position, doubt]));
    return answer.doubts !== null;
  }

  // Positions of the samples whose label is still the one that is doubted.
  positions() {
    return [...this.doubts.keys()].filter((at) => this.has(at));
  }

  has(at) {
    return this.doubts.has(at) && this.doubts.get(at).label === this.queue.labels[at];
  }

  // On a small view.
  note(at) {
    if (!this.has(at)) return "";
    const { label, predicted } = this.doubts.get(at);
    return text("review.doubt_note", { name: this.nameOf(label), other: this.nameOf(predicted) });
  }

  // In a sentence.
  about(at) {
    if (!this.has(at)) return "";
    const { label, predicted, chance } = this.doubts.get(at);
    return text("review.doubt", { name: this.nameOf(label), other: this.nameOf(predicted), chance: percent(chance, 0) });
  }

  // What the group is, and what changes now do not change.
  explanation() {
    return this.handedIn ? `${text("review.doubts")} ${text("review.handed_in")}` : text("review.doubts");
  }

  nameOf(number) {
    return this.state.classes[number].name;
  }
}
