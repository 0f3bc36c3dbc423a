// Sentences of the page in its language. Keys and placeholders: docs/labeling.md, "Languages".

import { money, number, percent, whole } from "./format.js";
import { language, strings } from "./strings.js";

const plural = new Intl.PluralRules(language);

// The sentence of a key. values: by placeholder; `count` chooses between key.one and key.other, `noun` (picture, text or
// row) fills {noun} and {nouns}; numbers are written as the language does.
export function text(key, values = {}) {
  return fill(key, values).join("");
}

// The same as a list, for sentences of which a value is an element.
export function fill(key, values = {}) {
  return template(key, values.count).split(/\{(\w+(?::\w+)?)\}/).map((part, i) => (i % 2 === 0 ? part : written(part, values)));
}

// The sentence of a message {key, values} of the server.
export function message({ key, values }) {
  return text(key, values);
}

export function hasText(key) {
  return Object.hasOwn(strings, key);
}

// So many pictures, texts or rows.
export function samples(count, noun) {
  return text(`count.${noun}`, { count });
}

// A probability.
export function chance(share) {
  if (share < 0.0001) return text("chance.tiny", { number: 10000 });
  if (share < 0.01) return text("chance.small", { number: Number((1 / share).toPrecision(2)) });
  if (share > 0.9999) return text("chance.sure", { percent: percent(0.9999, 2) });
  return percent(share, share < 0.1 ? 1 : 0);
}

function template(key, count) {
  return strings[key] ?? strings[`${key}.${plural.select(count)}`] ?? strings[`${key}.other`] ?? key;
}

// The text of a placeholder; {nouns:dative} is the dative of {nouns}, for languages that have one.
function written(placeholder, values) {
  const [name, form = "other"] = placeholder.split(":");
  if (name === "noun") return strings[`noun.${values.noun}.one`];
  if (name === "nouns") return strings[`noun.${values.noun}.${form}`];
  const value = values[name];
  if (typeof value === "number") return whole(value);
  if (value?.key !== undefined) return message(value);
  if (value?.places !== undefined) return number(value.number, value.places);
  if (value?.currency !== undefined) return money(value.amount, value);
  return value;
}
