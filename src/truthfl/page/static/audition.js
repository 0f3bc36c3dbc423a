// The words of an audition: what it is, in an offer; how it ended, in a receipt. All numbers come with the view.

import { make } from "./dom.js";
import { chance, count, duration, loss, money, number } from "./format.js";

// Paragraphs that explain the audition to somebody who has never heard of one.
export function auditionWords({ offer, audition, noun }) {
  return [
    `First your computer works alone. When your ${count(offer.samples, "label")} are there, and before anything of the others’ work ` +
      "reaches you, it trains a small model on your labels, by itself and in a way that is the same for everybody.",
    `The server tests that model on ${noun}s of its own. The result is its loss, a number for how wrong it is: lower is better. ` +
      `With honest labels about ${loss(audition.level)} is expected, give or take ${loss(audition.spread)}. If the others’ own ` +
      "models all do better or worse, more or less is expected of yours, too.",
    `Above ${loss(audition.limit)}, as things are expected, you are stopped: you take no part in the joint training and are paid ` +
      "nothing for computing, and for your labels what the formula gives, which may be nothing. With honest work the chance of " +
      `that is ${chance(audition.stopped_chance)}. Who sends no model within ${duration(offer.audition_seconds)} is stopped, too, and paid nothing.`,
  ].map((words) => make("p", {}, words));
}

// Figures of pay: two lines and their sum; entries for `pairs`.
export function payLines({ offer, audition, spread }) {
  const line = ({ expected, most }) => [money(expected, offer), " ", make("small", {}, `at most ${money(most, offer)}`)];
  return [
    ["for labels, expected", line(audition.labels)],
    ["for computing, expected", line(audition.computing)],
    ["in all, expected", line(audition.total)],
    ["give or take (standard deviation)", money(spread.deviation, offer)],
    ["at the least", [money(spread.worst, offer), " ", make("small", {}, "you never owe anything")]],
  ];
}

export function hardSamples({ offer, audition, noun }) {
  return `${noun.charAt(0).toUpperCase()}${noun.slice(1)}s differ, and so do the models trained on them: who happens to hold unusually hard ones is paid less, who holds ` +
    `easy ones more, about ${money(audition.label_deviation, offer)} give or take (standard deviation).`;
}

export function offerPlotWords({ offer, audition, spread }) {
  return `The line is your pay by the loss of your own model: ${money(spread.expected, offer)} at the expected loss of ` +
    `${loss(audition.level)}. Above ${loss(audition.limit)} you are stopped. The joint training is taken to end as expected.`;
}

// The recipe by which she trains alone, for the small print.
export function recipeWords({ steps, batch_size: batch, step_size: step, penalty, shifts }, noun) {
  const copies = shifts === 0 ? "" : `; of each ${noun} also ${shifts} shifted by one pixel`;
  return `${count(steps, "step")} of ${count(batch, noun)} each, drawn at random, step size ${step}, penalty ${penalty}${copies}.`;
}

// How the audition of a receipt ended.
export function resultWords({ audition, loss: testLoss, accuracy, settlement }) {
  if (audition.passed) {
    const right = accuracy === null ? "" : ` and was right in ${number(100 * accuracy, 1)}% of the test`;
    return `Your own model had a loss of ${loss(audition.solo_loss)}; ${loss(audition.expected)} was expected of it. The joint model ended at ` +
      `a test loss of ${loss(testLoss)}${right}; ${loss(audition.expected_joint_loss)} was expected of those who took part. ${reportsTaken(settlement)}`;
  }
  const why = audition.solo_loss === null
    ? `${audition.reason === null ? "No model of yours was taken." : `The server’s reason: ${audition.reason}`} Without a model, nothing is paid.`
    : `Your own model had a loss of ${loss(audition.solo_loss)}. About ${loss(audition.expected)} was expected, and up to ${loss(audition.limit)} ` +
      "passes: labels that do worse would harm the joint model. You are paid what the formula gives for labels alone.";
  return `You were stopped at the audition and took no part in the joint training. ${why}`;
}

export function receiptPlotWords({ audition }) {
  const own = audition.solo_loss === null ? "no model of yours was taken" : `yours had ${loss(audition.solo_loss)}`;
  const others = audition.passed ? "with the joint model and the reports of this job" : "for somebody who takes part, with the joint model of this job";
  return `Pay by the loss of one’s own model, ${others}: ${loss(audition.expected)} was expected, and ${own}. Above ${loss(audition.limit)} one is stopped.`;
}

export function reportsTaken({ delivered, asked }) {
  return delivered === asked ? `All your ${asked} reports were taken.` : `${delivered} of your ${asked} reports were taken.`;
}
