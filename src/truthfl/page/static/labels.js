// Labels: what a sample's label is, the labels of all samples with the order in which they are asked for, and the classes
// that are chosen and not confirmed yet.
//
// A label is the number of its class, -1 for none; where samples may have several classes, it is a list of numbers.

const NONE = new Set();

// The numbers of the classes, in a list.
export function numbersOf(label) {
  if (Array.isArray(label)) return label;
  return label < 0 ? [] : [label];
}

export function isLabeled(label) {
  return numbersOf(label).length > 0;
}

export function namesOf(label, classes) {
  return numbersOf(label).map((number) => classes[number].name).join(", ");
}

// The label with this class added, or taken off if it was there; for samples that may have several.
export function toggled(label, number) {
  const others = label.filter((one) => one !== number);
  return others.length < label.length ? others : [...others, number].sort((one, other) => one - other);
}

// Order of the samples to label: undecided ones by position, then skipped ones in the order in which they were skipped.
export class Queue {
  constructor(state) {
    this.total = state.total;
    this.requested = Math.min(state.requested ?? state.total, state.total);
    this.labels = state.several ? state.labels.slice() : Int32Array.from(state.labels);
    this.skipped = state.skipped.slice();
    this.flagged = new Set(state.flagged);
    this.unreadable = new Map(Object.entries(state.unreadable).map(([at, reason]) => [Number(at), reason]));
    this.recount();
  }

  // Compute `end`, behind the last sample to label, `target`, the number of readable samples before it, and how many of
  // them are labeled.
  recount() {
    let left = this.requested;
    let at = 0;
    while (at < this.total && left > 0) {
      if (!this.unreadable.has(at)) left -= 1;
      at += 1;
    }
    this.end = at;
    this.target = this.requested - left;
    this.labeled = 0;
    for (let i = 0; i < this.end; i += 1) if (isLabeled(this.labels[i]) && !this.unreadable.has(i)) this.labeled += 1;
  }

  // Apply the server's response to a decision: the new state of one sample, and of those that were decided with it.
  apply(result) {
    for (const other of result.also ?? []) this.apply(other);
    const at = result.position;
    if (at === null || at === undefined) return;
    const wasLabeled = isLabeled(this.labels[at]);
    this.labels[at] = result.label;
    if (at < this.end && !this.unreadable.has(at)) this.labeled += isLabeled(result.label) - wasLabeled;
    this.skipped = this.skipped.filter((position) => position !== at);
    if (result.skipped) this.skipped.push(at);
    if (result.flagged) this.flagged.add(at);
    else this.flagged.delete(at);
  }

  markUnreadable(at, reason) {
    this.unreadable.set(at, reason);
    this.recount();
  }

  // Positions of the next `count` samples to decide after the one at `current`; -1 for the start.
  upcoming(current, count) {
    const positions = [];
    const skipped = this.skippedSet();
    for (let step = 1; step <= this.end && positions.length < count; step += 1) {
      const at = (current + step) % this.end;
      if (at !== current && !isLabeled(this.labels[at]) && !skipped.has(at) && !this.unreadable.has(at)) positions.push(at);
    }
    for (const at of this.skipped) {
      if (positions.length >= count) break;
      if (at !== current && at < this.end && !this.unreadable.has(at)) positions.push(at);
    }
    return positions;
  }

  // Position of the sample to show after a decision about `current`; null if all are labeled.
  next(current) {
    const [next] = this.upcoming(current, 1);
    if (next !== undefined) return next;
    return this.labeled < this.target ? current : null;
  }

  // Position of the next readable sample in the direction of `step`, 1 or -1; null if there is none.
  neighbour(current, step) {
    let at = current + step;
    while (at >= 0 && at < this.end && this.unreadable.has(at)) at += step;
    return at >= 0 && at < this.end ? at : null;
  }

  // Number of a sample among the readable ones, from 1 on.
  numberOf(at) {
    let unreadableBefore = 0;
    for (const position of this.unreadable.keys()) if (position < at) unreadableBefore += 1;
    return at + 1 - unreadableBefore;
  }

  skippedSet() {
    return this.skipped.length === 0 ? NONE : new Set(this.skipped);
  }
}

// Classes that are chosen for a sample and not confirmed yet, where samples may have several; kept while one goes back
// and forth.
export class Choices {
  constructor(queue) {
    this.queue = queue;
    this.chosen = new Map(); // lists of numbers, by position
  }

  // What is shown as chosen: what is stored, until the participant chooses otherwise.
  at(position) {
    return this.chosen.get(position) ?? this.queue.labels[position];
  }

  // Choose a class, or take it off; whether it is chosen now.
  toggle(position, number) {
    this.chosen.set(position, toggled(this.at(position), number));
    return this.at(position).includes(number);
  }

  forget(position) {
    this.chosen.delete(position);
  }
}
