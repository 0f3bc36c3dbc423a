// The words of an audition: what it is, in an offer; how it ended, in a receipt. All numbers come with the view.

import { make } from "./dom.js";
import { duration, loss, money, percent } from "./format.js";
import { chance, fill, text } from "./text.js";

const SHOWN_DIFFERENCE = 0.00005; // between losses
const OWN = ["receipt.own_better", "receipt.own_as_expected", "receipt.own_worse"];
const EXPECTED_PARTS = { label_pay: "offer.pay_labels", computing_pay: "offer.pay_computing" };
const PAID_PARTS = { label_pay: "receipt.for_labels", computing_pay: "receipt.for_computing" };
const JOINT = ["receipt.joint_better", "receipt.joint_as_expected", "receipt.joint_worse"];

// Paragraphs that explain the audition to somebody who has never heard of one.
export function auditionWords({ offer, audition, noun }) {
  return [
    text("offer.audition_alone", { number: offer.samples }),
    text("offer.audition_test", { noun, level: loss(audition.level), spread: loss(audition.spread) }),
    text("offer.audition_stop", {
      limit: loss(audition.limit), chance: chance(audition.stopped_chance), time: duration(offer.audition_seconds),
    }),
  ].map((words) => make("p", {}, words));
}

// What the audition is, without numbers but the chance.
export function auditionShort({ audition, noun }) {
  return text("offer.audition_short", { noun, chance: chance(audition.stopped_chance) });
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

// The recipe for training alone, for the small print.
export function recipeWords({ steps, batch_size: batch, step_size: step, penalty, shifts }, noun) {
  return text(shifts === 0 ? "offer.recipe" : "offer.recipe_shifted", { steps, batch, step, penalty, shifts, noun });
}

// How the audition of a receipt ended: texts and elements. The numbers are in the calculation and at the plot.
export function resultWords(view) {
  const { audition, settlement } = view;
  if (audition.passed) {
    return [compared(OWN, audition.solo_loss, audition.expected), " ",
      jointWords(view, audition.expected_joint_loss), " ", roundsDelivered(settlement)];
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
