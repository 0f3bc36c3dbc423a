// Numbers, money and times in the page's language; a dash for what is not known.

import { language } from "./strings.js";

const UNKNOWN = "–";
const formats = new Map(); // by their options: to make one takes far longer than to use it
const FIRST_GROUPED = 1000; // smaller counts are written alike in all languages of the page

function format(value, options) {
  const key = JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Intl.NumberFormat(language, options));
  return formats.get(key).format(value);
}

// unit: {minor_units, currency}
function placesOf(unit) {
  return Math.max(0, Math.ceil(Math.log10(unit.minor_units)));
}

// morePlaces: decimal places besides those of the currency
export function money(value, unit, morePlaces = 0) {
  const places = placesOf(unit) + morePlaces;
  const needed = places === 0 && value !== 0 && Math.abs(value) < 10 && !Number.isInteger(value) ? 1 : places;
  return `${number(value, needed)} ${unit.currency}`;
}

// Money without its currency, which stands in a heading; unit: null if it is not known yet
export function amount(value, unit) {
  return unit === null ? UNKNOWN : number(value, placesOf(unit));
}

export function number(value, places, fewest = places) {
  if (value === null || value === undefined) return UNKNOWN;
  const rounded = Math.abs(value) < 0.5 * 10 ** -places ? 0 : value;
  const text = format(rounded, { minimumFractionDigits: fewest, maximumFractionDigits: places });
  return text.replace("-", "−");
}

// A count, or a number with at most six digits that count.
export function whole(value) {
  if (Number.isInteger(value) && value >= 0 && value < FIRST_GROUPED) return String(value);
  return format(value, Number.isInteger(value) ? {} : { maximumSignificantDigits: 6 });
}

// "3 / 5"; "" if it is not known of how many.
export function ofAll(done, all) {
  if (all === null || all === undefined) return "";
  return `${done === null || done === undefined ? UNKNOWN : whole(done)} / ${whole(all)}`;
}

export function loss(value) {
  return number(value, 4);
}

export function percent(share, places) {
  if (share === null || share === undefined) return UNKNOWN;
  return format(share, { style: "percent", minimumFractionDigits: places, maximumFractionDigits: places });
}

export function duration(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const from = Math.max(0, units.findIndex(([, length]) => seconds >= length));
  let left = Math.max(1, Math.floor(seconds));
  const words = [];
  for (const [name, size] of units.slice(from, from + 2)) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) words.push(amountOf(count, name, "long"));
  }
  return words.join(" ");
}

// A number of units of time: "5 minutes" if display is "long", "5 min" if it is "short".
export function amountOf(count, unit, display) {
  return format(count, { style: "unit", unit, unitDisplay: display });
}

// Hours and minutes of a time in seconds since 1970, with the date unless it is today.
export function timeOfDay(seconds) {
  const then = new Date(seconds * 1000);
  const today = then.toDateString() === new Date().toDateString();
  return then.toLocaleString(language, { ...(today ? {} : { day: "numeric", month: "short" }), hour: "2-digit", minute: "2-digit" });
}

// The time of day of an ISO time to the second, as logs have it, with the date unless it is today.
export function logTime(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return UNKNOWN;
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return `${day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Seconds as 4 s, 1:05 min, 2:05:09 h, 3 d 04:05 h.
export function span(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes, rest] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60, left % 60];
  if (days > 0) return `${days} d ${two(hours)}:${two(minutes)} h`;
  if (hours > 0) return `${hours}:${two(minutes)}:${two(rest)} h`;
  return minutes > 0 ? `${minutes}:${two(rest)} min` : `${rest} s`;
}

function two(value) {
  return String(value).padStart(2, "0");
}
