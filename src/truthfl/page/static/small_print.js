// The small print of an offer: its terms in the page's language, and as they were signed, in English.

import { recipeWords } from "./audition.js";
import { byId, make, pairs } from "./dom.js";
import { duration, parameter } from "./format.js";
import { hasText, message, text } from "./text.js";

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
    return make("li", {}, ...(hasText(`term.${name}`) ? [text(`term.${name}`), " (", signed, ")"] : [signed]), `: ${parameter(value)}`);
  }));
}

// The sentences of the offer as they were signed.
function signedWords({ formula, dropping_out: droppingOut }, { lies }) {
  return [`${formula}.`, droppingOut, ...lies.map(({ kind, words }) => `${kind}: ${words}.`)].map((words) => make("p", { class: "signed", lang: "en" }, words));
}
