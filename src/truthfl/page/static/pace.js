// How fast labels are given, and how long the rest will take: the median of the last pauses, breaks left out.

const REMEMBERED = 20;
const ENOUGH = 3;
const A_BREAK = 60; // seconds

export class Pace {
  constructor(pauses) {
    this.pauses = pauses.filter((pause) => pause < A_BREAK);
    this.last = null;
  }

  labeled() {
    const now = performance.now() / 1000;
    if (this.last !== null && now - this.last < A_BREAK) this.pauses.push(now - this.last);
    this.pauses = this.pauses.slice(-REMEMBERED);
    this.last = now;
  }

  words(left) {
    if (this.pauses.length < ENOUGH || left === 0) return "";
    const sorted = [...this.pauses].sort((a, b) => a - b);
    const pause = Math.max(sorted[sorted.length >> 1], 0.01);
    return `${Math.max(1, Math.round(60 / pause)).toLocaleString("en")}/min · ${duration(pause * left)} left`;
  }
}

function duration(seconds) {
  if (seconds < 50) return "under 1 min";
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${Math.max(1, minutes)} min`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
