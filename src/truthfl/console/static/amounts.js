// Money, shares and times in the console. The currency stands in headings; cells have the amount alone.

import { number } from "./format.js";

const DASH = "–";

// An amount of money with the decimal places of its currency.
export function amount(value, money) {
  if (value === null || value === undefined || money === null) return DASH;
  return number(value, Math.max(0, Math.ceil(Math.log10(money.minor_units))));
}

export function loss(value) {
  return value === null || value === undefined ? DASH : number(value, 4);
}

export function percent(share) {
  return share === null || share === undefined ? DASH : `${number(100 * share, 1)}%`;
}

// "3 / 5", with a dash for what is not known.
export function ofAll(done, all) {
  if (all === null || all === undefined) return "";
  return `${done === null || done === undefined ? DASH : whole(done)} / ${whole(all)}`;
}

export function whole(value) {
  return value.toLocaleString("en");
}

// The time of day of an ISO time, with the date unless it is today.
export function timeOf(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return DASH;
  const two = (value) => String(value).padStart(2, "0");
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `;
  return `${day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

// Seconds as 4 s, 1:05 min, 2:05:09 h, 3 d 04:05 h.
export function span(seconds) {
  const left = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  const [days, hours, minutes, rest] = [Math.floor(left / 86400), Math.floor(left / 3600) % 24, Math.floor(left / 60) % 60, left % 60];
  if (days > 0) return `${days} d ${two(hours)}:${two(minutes)} h`;
  if (hours > 0) return `${hours}:${two(minutes)}:${two(rest)} h`;
  return minutes > 0 ? `${minutes}:${two(rest)} min` : `${rest} s`;
}
