// Sentences of the page in its language. Keys and placeholders: docs/labeling.md, "Languages".

import { make } from "./dom.js";
import { money, number, percent, timeOfDay, whole } from "./format.js";
import { language, strings } from "./strings.js";

const plural = new Intl.PluralRules(language);

// The sentence of a key. values: by placeholder; `count` chooses between key.one and key.other, `noun` (picture, text or
// row) fills {noun} and {nouns}; numbers are written as the language does.
export function text(key, values = {}) {
  return plain(fill(key, values));
}

// The same as a list, for sentences of which a value is an element.
export function fill(key, values = {}) {
  return template(key, values.count).split(/\{(\w+(?::\w+)?)\}/).flatMap((part, i) => (i % 2 === 0 ? part : written(part, values)));
}

// The sentence of a message {key, values} of the server.
export function message(form) {
  return plain(parts(form));
}

// What the server says, as a list of texts and elements: a message, money, a time and so on (coded_text.py). What has no
// translation is marked as English; somebody's own words are quoted, and their language is not claimed.
export function parts(form) {
  if (form.key !== undefined) return fill(form.key, form.values);
  if (form.list !== undefined) return form.list.flatMap((one, i) => [i === 0 ? "" : form.separator, ...written("one", { one })]);
  if (form.english !== undefined) return [make("span", { lang: "en" }, form.english)];
  if (form.quoted !== undefined) return [make("q", { lang: "" }, form.quoted)];
  if (form.time !== undefined) return [timeOfDay(form.time)];
  if (form.places !== undefined) return [number(form.number, form.places)];
  return [money(form.amount, form)];
}

function plain(pieces) {
  return pieces.map((piece) => (piece instanceof Node ? piece.textContent : piece)).join("");
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

// The texts and elements of a placeholder; {nouns:dative} is the dative of {nouns}, for languages that have one.
function written(placeholder, values) {
  const [name, form = "other"] = placeholder.split(":");
  if (name === "noun") return [strings[`noun.${values.noun}.one`]];
  if (name === "nouns") return [strings[`noun.${values.noun}.${form}`]];
  const value = values[name];
  if (typeof value === "number") return [whole(value)];
  return typeof value === "object" && !(value instanceof Node) ? parts(value) : [value];
}
