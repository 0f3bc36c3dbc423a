// The words of an offer and a receipt: money and time, the audition, and the small print. All numbers come with the view.

import { byId, make, pairs } from "./dom.js";
import { duration, loss, money, number, percent } from "./format.js";
import { chance, fill, hasText, message, text } from "./text.js";

const SHOWN_DIFFERENCE = 0.00005; // between losses
const OWN = ["receipt.own_better", "receipt.own_as_expected", "receipt.own_worse"];
const EXPECTED_PARTS = { label_pay: "offer.pay_labels", computing_pay: "offer.pay_computing" };
const PAID_PARTS = { label_pay: "receipt.for_labels", computing_pay: "receipt.for_computing" };
const JOINT = ["receipt.joint_better", "receipt.joint_as_expected", "receipt.joint_worse"];

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

// Paragraphs that explain the audition to somebody who has never heard of one.
export function auditionWords({ offer, audition, noun }) {
  return [
    text("offer.audition_alone", { number: offer.samples }),
    text("offer.audition_test", { noun, level: loss(audition.level), spread: loss(audition.spread) }),
    text("offer.audition_stop", { limit: loss(audition.limit), time: duration(offer.audition_seconds) }),
  ].map((words) => make("p", {}, words));
}

// What a part of pay is for, in the words that a contract without a translation has.
function partName({ name, words }, keys) {
  return name in keys ? text(keys[name]) : make("span", { lang: "en" }, `for ${words}`);
}

// The parts of a receipt's pay; entries for `pairs`.
export function paidParts({ offer, audition }) {
  return audition.parts.map((part) => [partName(part, PAID_PARTS), money(part.paid, offer, 1)]);
}

// Figures of pay: a line for each part, and their sum; entries for `pairs`.
export function payLines({ offer, audition, spread }) {
  const line = ({ expected, most }) => [money(expected, offer), " ", make("small", {}, text("offer.pay_at_most", { pay: money(most, offer) }))];
  return [
    ...audition.parts.map((part) => [partName(part, EXPECTED_PARTS), line(part)]),
    [text("offer.pay_all"), line(audition.total)],
    [text("offer.pay_deviation"), money(spread.deviation, offer)],
    [text("offer.pay_least"), [money(spread.worst, offer), " ", make("small", {}, text("offer.pay_no_debt"))]],
  ];
}

export function hardSamples({ offer, audition, noun }) {
  return text("offer.hard_samples", { noun, pay: money(audition.label_deviation, offer) });
}

export function offerPlotWords({ offer, audition, spread }) {
  return text("offer.plot_words_audition", { pay: money(spread.expected, offer), loss: loss(audition.level), limit: loss(audition.limit) });
}

// The recipe of the training alone, for the small print.
export function recipeWords({ steps, batch_size: batch, step_size: step, penalty, shifts }, noun) {
  return text(shifts === 0 ? "offer.recipe" : "offer.recipe_shifted", { steps, batch, step, penalty, shifts, noun });
}

// How the audition of a receipt ended: texts and elements. The numbers are in the calculation and at the plot.
export function resultWords(view) {
  const { audition, settlement } = view;
  if (audition.passed) {
    return [compared(OWN, audition.solo_loss, audition.expected), " ",
      jointWords(view, audition.expected_joint_loss), ...(settlement.asked === 0 ? [] : [" ", roundsDelivered(settlement)])];
  }
  return [text("receipt.stopped"), " ", ...(audition.solo_loss === null ? whyNoModel(audition.reason_message) : [text("receipt.stopped_loss")])];
}

// How the joint model came out, where this loss of it was expected.
export function jointWords({ loss: testLoss, accuracy }, expected) {
  const words = compared(JOINT, testLoss, expected);
  return accuracy === null ? words : `${words} ${text("receipt.joint_right", { right: percent(accuracy, 1) })}`;
}

// One of three sentences: a loss is better than the expected one, the same as far as its digits are shown, or worse.
function compared([better, same, worse], own, expected) {
  if (Math.abs(own - expected) < SHOWN_DIFFERENCE) return text(same);
  return text(own < expected ? better : worse);
}

// reason: the server's, or null
function whyNoModel(reason) {
  const why = reason === null ? [text("receipt.no_model")] : fill("receipt.no_model_reason", { reason });
  return [...why, " ", text("receipt.no_model_no_pay")];
}

export function receiptPlotWords({ audition }) {
  const values = { expected: loss(audition.expected), limit: loss(audition.limit) };
  if (audition.solo_loss === null) return text("receipt.plot_no_model", values);
  const own = loss(audition.solo_loss);
  return text(audition.passed ? "receipt.plot_took_part" : "receipt.plot_stopped", { ...values, own });
}

export function roundsDelivered({ delivered, asked }) {
  return delivered === asked ? text("receipt.rounds_all", { count: asked }) : text("receipt.rounds_some", { delivered, total: asked });
}

// terms: messages for what is signed in English; where there are none, the signed words stand alone
export function showSmallPrint({ offer, audition, terms, hash, fingerprints, noun }) {
  const code = (words) => make("span", { class: "code" }, words);
  const told = (messages, words) => (messages.length > 0 ? messages.map((one) => make("p", {}, message(one))) : [make("p", { lang: "en" }, words)]);
  const times = { label: duration(offer.label_seconds), round: duration(offer.round_seconds) };
  const units = text("offer.print_units", { currency: offer.currency, count: offer.minor_units });
  pairs(byId("print"), [
    [text("common.job"), text("offer.print_job", { job: offer.job, version: offer.version, name: offer.client })],
    [text("offer.print_formula"), told(terms.formula, `${offer.formula}.`)],
    [text("offer.print_numbers"), [payNumbers(offer.pay), make("p", {}, `${units}.`)]],
    [text("offer.print_dropping_out"), told(terms.dropping_out, offer.dropping_out)],
    [text("offer.print_time"), audition === null ? text("offer.print_times", times)
      : text("offer.print_times_audition", { ...times, alone: duration(offer.audition_seconds) })],
    ...(audition === null ? [] : [[text("offer.print_recipe"), recipeWords(offer.recipe, noun)]]),
    [text("offer.print_test"), text("offer.print_test_words", { number: offer.test_samples })],
    [text("offer.print_commitment"), code(offer.commitment)],
    [text("offer.print_hash"), code(hash)],
    [text("offer.print_your_key"), code(fingerprints.yours)],
    [text("common.operator_key"), code(fingerprints.operator)],
    [text("offer.print_signed"), [make("p", {}, text("offer.print_signed_words")), ...signedWords(offer, terms)]],
  ]);
}

// The numbers of the formula: what each is called, its name in the signed offer, and its value.
function payNumbers(pay) {
  return make("ul", { class: "terms" }, ...Object.entries(pay).map(([name, value]) => {
    const signed = make("span", { class: "code", lang: "en" }, name);
    return make("li", {}, ...(hasText(`term.${name}`) ? [text(`term.${name}`), " (", signed, ")"] : [signed]), `: ${number(value, 2)}`);
  }));
}

// The sentences of the offer as they were signed.
function signedWords({ formula, dropping_out: droppingOut }, { lies }) {
  return [`${formula}.`, droppingOut, ...lies.map(({ kind, words }) => `${kind}: ${words}.`)].map((words) => make("p", { class: "signed", lang: "en" }, words));
}
