// Formatting of numbers, money and durations in the page's language.

import { language } from "./strings.js";

const formats = new Map(); // by their options: to make one takes far longer than to use it
const FIRST_GROUPED = 1000; // smaller counts are written alike in all languages of the page

function format(value, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language, options));
  return formats.get(key).format(value);
}

// unit: {minor_units, currency}; morePlaces: decimal places besides those of the currency
export function money(amount, unit, morePlaces = 0) {
  const places = Math.max(0, Math.ceil(Math.log10(unit.minor_units))) + morePlaces;
  const needed = places === 0 && amount !== 0 && Math.abs(amount) < 10 && !Number.isInteger(amount) ? 1 : places;
  return `${number(amount, needed)} ${unit.currency}`;
}

// A parameter of pay, with two decimal places.
export function parameter(amount) {
  return number(amount, 2);
}

export function number(value, places, fewest = places) {
  const rounded = Math.abs(value) < 0.5 * 10 ** -places ? 0 : value;
  const text = format(rounded, { minimumFractionDigits: fewest, maximumFractionDigits: places });
  return text.replace("-", "−");
}

// A count, or a number with at most six digits that count.
export function whole(value) {
  if (Number.isInteger(value) && value >= 0 && value < FIRST_GROUPED) return String(value);
  return format(value, Number.isInteger(value) ? {} : { maximumSignificantDigits: 6 });
}

export function loss(value) {
  return number(value, 4);
}

export function percent(share, places) {
  return format(share, { style: "percent", minimumFractionDigits: places, maximumFractionDigits: places });
}

export function duration(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const from = Math.max(0, units.findIndex(([, length]) => seconds >= length));
  let left = Math.max(1, Math.floor(seconds));
  const words = [];
  for (const [name, size] of units.slice(from, from + 2)) {
    const amount = Math.floor(left / size);
    left -= amount * size;
    if (amount > 0) words.push(amountOf(amount, name, "long"));
  }
  return words.join(" ");
}

// An amount of a unit of time: "5 minutes" if display is "long", "5 min" if it is "short".
export function amountOf(amount, unit, display) {
  return format(amount, { style: "unit", unit, unitDisplay: display });
}

// Hours and minutes of a time in seconds since 1970, with the date unless it is today.
export function timeOfDay(seconds) {
  const then = new Date(seconds * 1000);
  const today = then.toDateString() === new Date().toDateString();
  return then.toLocaleString(language, { ...(today ? {} : { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit" });
}
