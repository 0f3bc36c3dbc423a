// Labeling speed and remaining time, from the median of the last pauses between labels, without breaks.

import { amountOf } from "./format.js";
import { text } from "./text.js";

const MAX_PAUSES = 20;
const MIN_PAUSES = 3;
const BREAK_S = 60; // a longer pause does not count

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
    return text("label.pace", { speed: Math.max(1, Math.round(60 / pause)), time: duration(pause * left) });
  }
}

function duration(seconds) {
  if (seconds < 50) return text("label.under_a_minute");
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return amountOf(Math.max(1, minutes), "minute", "short");
  return `${amountOf(Math.floor(minutes / 60), "hour", "short")} ${amountOf(minutes % 60, "minute", "short")}`;
}
