// Colours of the classes, besides their names and keys: eight that the colour-blind can tell apart (Okabe and Ito), and
// the same eight striped.

import { make } from "./dom.js";

const COLOURS = 8;

// An element in the colour of a class; null if there are too many classes or it is -1, none.
export function swatch(number, classes) {
  if (number < 0 || classes.length > 2 * COLOURS) return null;
  const striped = number >= COLOURS ? " striped" : "";
  return make("span", { class: `swatch colour-${number % COLOURS}${striped}`, "aria-hidden": "true" });
}
