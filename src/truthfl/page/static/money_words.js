// An offer's money and time in plain words: per sample, per hour, what is sure, likely and the most, how it is paid.

import { make } from "./dom.js";
import { duration, money, number } from "./format.js";
import { chance, fill, text } from "./text.js";

// The figures at the top of the offer; entries for `pairs`.
export function moneyFacts({ offer, spread, summary, noun, has_labels: hasLabels }) {
  const small = (words) => make("small", {}, words);
  const pace = number(summary.pace, 1, 0);
  const time = [duration(rough(summary.label_seconds)), " ", small(text(summary.pace_known ? "offer.at_your_pace" : "offer.at_assumed_pace", { seconds: pace, noun }))];
  return [
    [text("offer.fact_pay"), money(spread.expected, offer), "key"],
    [text("offer.fact_per_sample", { noun }), money(summary.per_sample, offer, summary.per_sample < 10 ? 1 : 0)],
    ...(hasLabels ? [] : [[text("offer.fact_time"), time], [text("offer.fact_per_hour"), money(summary.per_hour, offer)]]),
  ];
}

// Seconds, in whole minutes from two on.
function rough(seconds) {
  return seconds < 120 ? seconds : 60 * Math.round(seconds / 60);
}

// What is sure, likely, and the most; entries for `pairs`.
export function moneyBounds({ offer, spread, summary, audition }) {
  const small = (words) => make("small", {}, words);
  const least = summary.sure ? [text("offer.bound_sure"), [money(summary.least, offer), " ", small(text("offer.pay_no_debt"))]]
    : [text("offer.bound_negative"), [money(summary.least, offer), " ", small(text("offer.bound_negative_words", { chance: chance(spread.negative_chance) }))]];
  const most = [money(summary.most, offer), ...(audition === null ? [" ", small(text("offer.bound_perfect"))] : [])];
  return [
    least,
    [text("offer.bound_likely"), text("offer.bound_range", { least: money(summary.likely_least, offer), most: money(summary.likely_most, offer) })],
    [text("offer.bound_most"), most],
  ];
}

// How long there is for the labels, and what follows if they are not there then.
export function timeWords({ offer, audition, has_labels: hasLabels }) {
  if (hasLabels) return text("offer.time_labeled");
  return text(audition === null ? "offer.time" : "offer.time_audition", { time: duration(offer.label_seconds) });
}

// When and how it is paid: texts and elements.
export function paymentWords({ offer }) {
  const note = offer.payment_note;
  const how = note ? fill("offer.payment_note", { note: make("q", {}, note) }) : [text("offer.payment_unknown")];
  return [text("offer.payment"), " ", ...how];
}
