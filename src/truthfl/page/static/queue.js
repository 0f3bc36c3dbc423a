// Which sample comes next: the open ones in order, then those that were skipped, in the order they were.

export class Queue {
  constructor(state) {
    this.total = state.total;
    this.asked = Math.min(state.asked ?? state.total, state.total);
    this.labels = Int32Array.from(state.labels);
    this.skipped = state.skipped.slice();
    this.flagged = new Set(state.flagged);
    this.unreadable = new Map(Object.entries(state.unreadable).map(([at, why]) => [Number(at), why]));
    this.measure();
  }

  // The asked number of readable samples ends somewhere; nothing beyond is shown.
  measure() {
    let left = this.asked;
    let at = 0;
    while (at < this.total && left > 0) {
      if (!this.unreadable.has(at)) left -= 1;
      at += 1;
    }
    this.end = at;
    this.wanted = this.asked - left;
    this.labeled = 0;
    for (let i = 0; i < this.end; i += 1) if (this.labels[i] >= 0 && !this.unreadable.has(i)) this.labeled += 1;
  }

  apply(now) {
    const at = now.position;
    if (at === null || at === undefined) return;
    const before = this.labels[at] >= 0;
    this.labels[at] = now.label;
    if (at < this.end && !this.unreadable.has(at)) this.labeled += (now.label >= 0) - before;
    this.skipped = this.skipped.filter((one) => one !== at);
    if (now.skipped) this.skipped.push(at);
    if (now.flagged) this.flagged.add(at);
    else this.flagged.delete(at);
  }

  passOver(at, why) {
    this.unreadable.set(at, why);
    this.measure();
  }

  // The next `count` samples to decide, were the one at `current` decided; -1 begins at the first.
  upcoming(current, count) {
    const found = [];
    const skipped = this.skippedSet();
    for (let step = 1; step <= this.end && found.length < count; step += 1) {
      const at = (current + step) % this.end;
      if (at !== current && this.labels[at] < 0 && !skipped.has(at) && !this.unreadable.has(at)) found.push(at);
    }
    for (const at of this.skipped) {
      if (found.length >= count) break;
      if (at !== current && at < this.end && !this.unreadable.has(at)) found.push(at);
    }
    return found;
  }

  // What is shown after a decision about `current`; null when all is labeled.
  next(current) {
    const [found] = this.upcoming(current, 1);
    if (found !== undefined) return found;
    return this.labeled < this.wanted ? current : null;
  }

  neighbour(current, step) {
    let at = current + step;
    while (at >= 0 && at < this.end && this.unreadable.has(at)) at += step;
    return at >= 0 && at < this.end ? at : null;
  }

  // Its number among those that are asked for, counted from one.
  numberOf(at) {
    let before = 0;
    for (const bad of this.unreadable.keys()) if (bad < at) before += 1;
    return at + 1 - before;
  }

  skippedSet() {
    return this.skipped.length === 0 ? NONE : new Set(this.skipped);
  }
}

const NONE = new Set();
