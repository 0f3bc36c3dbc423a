// Classes that are chosen for a sample and not confirmed yet, where samples may have several; kept while one goes back
// and forth.

import { toggled } from "./label_value.js";

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
