// Formatting of numbers, money and durations.

export function money(amount, offer) {
  const places = Math.max(0, Math.ceil(Math.log10(offer.minor_units)));
  const needed = places === 0 && amount !== 0 && Math.abs(amount) < 10 && !Number.isInteger(amount) ? 1 : places;
  return `${number(amount, needed)} ${offer.currency}`;
}

// A parameter of pay, with two decimal places.
export function parameter(amount) {
  return number(amount, 2);
}

export function number(value, places) {
  const rounded = Math.abs(value) < 0.5 * 10 ** -places ? 0 : value;
  const text = rounded.toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places });
  return text.replace("-", "−");
}

export function loss(value) {
  return number(value, 4);
}

// A probability.
export function chance(share) {
  if (share < 0.0001) return "less than 1 in 10,000";
  if (share < 0.01) return `about 1 in ${Number((1 / share).toPrecision(2)).toLocaleString("en")}`;
  if (share > 0.9999) return "over 99.99%";
  return `${number(100 * share, share < 0.1 ? 1 : 0)}%`;
}

export function duration(seconds) {
  const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const from = Math.max(0, units.findIndex(([, length]) => seconds >= length));
  let left = Math.max(1, Math.floor(seconds));
  const words = [];
  for (const [name, size] of units.slice(from, from + 2)) {
    const whole = Math.floor(left / size);
    left -= whole * size;
    if (whole > 0) words.push(count(whole, name));
  }
  return words.join(" ");
}

export function count(value, noun) {
  return `${value.toLocaleString("en")} ${noun}${value === 1 ? "" : "s"}`;
}
