// The offer: work, pay, costs, other behaviours compared with honest work, and the participant's answer.

import { errorWords, getJson, postJson, showError } from "./api.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { loss, money, number } from "./format.js";
import { showInstructions } from "./instructions.js";
import { watchDocuments } from "./job_news.js";
import { payPlot } from "./pay_plot.js";
import { auditionWords, hardSamples, moneyBounds, moneyFacts, offerPlotWords, payLines, paymentWords, showSmallPrint, timeWords } from "./pay_words.js";
import { chance, fill, hasText, message, samples, text } from "./text.js";

let view = null; // the server's response: the offer and the values computed from it
let lastRequest = 0; // responses to earlier requests are not shown
const edited = new Set(); // names of the costs that the participant entered

async function fetchView() {
  const fields = [...edited].map((name) => [name, byId(`cost-${name}`).value]);
  const entered = fields.filter(([, value]) => value !== "");
  const query = view === null ? "" : `?${new URLSearchParams(entered)}`;
  return getJson(`api/offer${query}`);
}

async function load() {
  view = await fetchView();
  byId("none").hidden = view.offer !== null;
  byId("offer").hidden = view.offer === null;
  if (view.offer === null) {
    view = null;
    return;
  }
  edited.clear();
  showTask(view);
  pairs(byId("facts"), moneyFacts(view));
  pairs(byId("bounds"), moneyBounds(view));
  byId("time-words").textContent = timeWords(view);
  byId("payment-words").replaceChildren(...paymentWords(view));
  showAudition(view);
  showPay(view);
  showPrivacy(view);
  showSmallPrint(view);
  byId("cost-labeling").value = view.costs.labeling.toFixed(2);
  byId("cost-computing").value = view.costs.computing.toFixed(2);
  for (const unit of document.querySelectorAll(".unit")) unit.textContent = `(${view.offer.currency})`;
  showCosts(view);
  showAnswer(view);
  await showInstructions();
}

function showTask({ offer, audition, noun, several }) {
  byId("title").textContent = text("offer.title", { name: offer.client });
  byId("again").hidden = offer.version === 1;
  const rounds = offer.participation < 1
    ? text("offer.some_rounds", { number: Math.round(offer.participation * offer.rounds), total: offer.rounds }) : offer.rounds;
  const task = { noun, classes: offer.classes.length, samples: samples(offer.samples, noun) };
  byId("lead").textContent = several ? `${text("offer.lead", task)} ${text("offer.several")}` : text("offer.lead", task);
  const together = audition === null ? "offer.rounds_words" : "offer.rounds_words_audition";
  byId("rounds-words").textContent = text(offer.rounds === 0 ? "offer.rounds_words_alone" : together, { rounds, batch: offer.batch_size, noun });
}

function showAudition(view) {
  byId("audition").hidden = view.audition === null;
  byId("audition-short").hidden = view.audition === null;
  byId("hard-words").hidden = view.audition === null;
  byId("computing-what").textContent = view.audition === null ? "" : text("offer.cost_computing_audition");
  if (view.audition === null) return;
  byId("audition-short").textContent = text("offer.audition_short");
  byId("audition-words").replaceChildren(...auditionWords(view));
  byId("hard-words").textContent = hardSamples(view);
}

function showPrivacy({ privacy, noun }) {
  byId("stay").textContent = text("offer.stay", { noun });
  byId("leaves").replaceChildren(...privacy.leaves.map((sentence) => make("li", {}, message(sentence))));
  byId("noise-words").textContent = message(privacy.noise_words);
}

function showPay(view) {
  const { offer, spread, explanation, audition } = view;
  byId("pay-words").replaceChildren(...explanation.map(explanationParagraph));
  pairs(byId("pay-figures"), audition === null ? payFigures(offer, spread) : payLines(view));
  const words = audition === null ? plotWords(offer, spread) : offerPlotWords(view);
  payPlot(byId("plot"), { ...view.plot, words });
  byId("plot-words").textContent = `${words} ${text(audition === null ? "offer.plot_range" : "offer.plot_range_audition")}`;
}

// sentence: a message, or, of a contract that the page does not know, a sentence in English
function explanationParagraph(sentence) {
  return typeof sentence === "string" ? make("p", { lang: "en" }, sentence) : make("p", {}, message(sentence));
}

function payFigures(offer, spread) {
  const negative = [[text("offer.pay_negative"), chance(spread.negative_chance)]];
  return [
    [text("offer.pay_expected"), money(spread.expected, offer)],
    [text("offer.pay_deviation"), money(spread.deviation, offer)],
    ...(spread.zero_loss === null ? [] : negative),
    [worstCase(offer, spread), [money(spread.worst, offer), " ", make("small", {}, text("offer.pay_at_loss", { loss: loss(spread.worst_loss) }))]],
  ];
}

function plotWords(offer, spread) {
  const values = { pay: money(spread.expected, offer), loss: loss(offer.expected_loss) };
  return spread.zero_loss === null ? text("offer.plot_words", values)
    : text("offer.plot_words_negative", { ...values, zero: loss(spread.zero_loss) });
}

function worstCase(offer, spread) {
  return text(spread.worst_loss > Math.log(offer.classes.length) ? "offer.pay_worst_deviations" : "offer.pay_worst_nothing");
}

function showCosts({ offer, outlooks, costs }) {
  const [honest] = outlooks;
  byId("cost-words").textContent = text("offer.cost_sum", {
    cost: money(costs.labeling + costs.computing, offer), left: money(honest.left, offer), chance: chance(honest.chance_below_cost),
  });
  byId("lie-words").textContent = lieWords(offer, outlooks.slice(1));
  byId("behaviours").replaceChildren(...[...outlooks, declined(honest)].map((outlook) => {
    const [kind, comparison] = comparedToHonest(outlook, offer);
    return make("li", { class: kind },
      behaviourTitle(outlook.kind), " ",
      make("span", { class: "left" }, money(outlook.left, offer)), " ",
      make("span", { class: "explanation" }, ...behaviourWords(outlook, offer)), " ",
      make("span", { class: "comparison" }, comparison));
  }));
}

// Declining as one of the choices: nothing is paid, and it costs nothing.
function declined(honest) {
  return { kind: "decline", words: "", pay: 0, cost: 0, left: 0, difference: -honest.left, difference_error: 0, stopped: false };
}

// The title of a kind of behaviour; in English if the page does not know it.
function behaviourTitle(kind) {
  const key = `behaviour.${keyOf(kind)}.title`;
  return hasText(key) ? make("span", { class: "title" }, text(key)) : make("span", { class: "title", lang: "en" }, kind);
}

function behaviourWords(outlook, offer) {
  const key = `behaviour.${keyOf(outlook.kind)}.words`;
  const best = outlook.words ? fill("offer.best_found", { words: outlook.said }) : [];
  return [
    hasText(key) ? `${text(key)} ` : "", ...best, best.length > 0 ? " " : "",
    outlook.stopped ? `${text("offer.would_be_stopped")} ` : "",
    text("offer.paid_and_cost", { pay: money(outlook.pay, offer), cost: money(outlook.cost, offer) }),
  ];
}

function keyOf(kind) {
  return kind.replaceAll(" ", "_");
}

// What was searched, and whether something was found that pays.
function lieWords(offer, lies) {
  if (lies.length === 0) return text("offer.lies_unknown");
  const paying = lies.filter((lie) => lie.pays);
  const found = paying.length === 0 ? text("offer.lies_none_pay") : text("offer.lies_pay", { count: paying.length });
  return [text("offer.lies_tried", { count: offer.lies_tried }), found, text("offer.lies_error")].join(" ");
}

// CSS class and text.
function comparedToHonest(outlook, offer) {
  if (outlook.kind === "honest") return ["honest", text("offer.left_for_you")];
  if (Math.abs(outlook.difference) < 0.5 / offer.minor_units) return ["same", text("offer.gains_nothing")];
  const error = number(2 * outlook.difference_error, offer.minor_units > 1 ? 2 : 0); // 19 in 20
  const difference = `${money(outlook.difference, offer)}${outlook.kind === "decline" ? "" : ` ± ${error}`}`;
  return outlook.difference > 0 ? ["more", `+${difference}`] : ["less", difference];
}

function showAnswer({ offer, answer, noun, has_labels: hasLabels, cannot_sign: obstacle }) {
  const container = byId("answer");
  const words = {
    acceptance: [text("offer.accepted"), text(hasLabels ? "offer.accepted_labeled" : "offer.accepted_label", { noun })],
    refusal: [text("offer.declined"), text("offer.declined_words"), text("offer.declined_another")],
  }[answer];
  if (words) {
    const next = answer === "acceptance" && !hasLabels ? make("a", { class: "main", href: "label" }, text("offer.start_labeling")) : null;
    container.replaceChildren(make("p", { class: "state", tabindex: "-1" }, words[0]), make("p", {}, words[1]),
      words[2] ? make("p", { class: "by-itself" }, words[2]) : "", make("div", { class: "row" }, next));
    return;
  }
  if (obstacle) {
    container.replaceChildren(make("p", { class: "state" }, text("offer.cannot_answer")), make("p", {}, message(obstacle)));
    return;
  }
  const accept = make("button", { type: "button", class: "main" }, text("offer.accept"));
  const decline = make("button", { type: "button", class: "plain" }, text("offer.decline"));
  accept.addEventListener("click", () => confirm(offer, true));
  decline.addEventListener("click", () => confirm(offer, false));
  container.replaceChildren(make("p", {}, text("offer.answer_words")), make("div", { class: "row" }, accept, decline));
}

function confirm(offer, accepted) {
  byId("sign-title").textContent = text(accepted ? "offer.accept_title" : "offer.decline_title");
  byId("sign-words").textContent = accepted ? `${text("offer.accept_words", { samples: samples(offer.samples, view.noun) })} ${timeWords(view)}`
    : text("offer.decline_words");
  byId("sign-yes").textContent = text(accepted ? "offer.accept_sign" : "offer.decline_sign");
  const offerHash = view.hash;
  byId("sign-yes").onclick = () => sendAnswer(offerHash, accepted);
  byId("sign").showModal();
}

async function sendAnswer(offerHash, accepted) {
  byId("sign-yes").disabled = true;
  try {
    const response = await postJson("api/answer", { offer: offerHash, accepted });
    if (view.hash === offerHash) view.answer = response.answer;
    alarm("");
  } catch (error) {
    showError(error);
  } finally {
    byId("sign-yes").disabled = false;
    byId("sign").close();
  }
  showAnswer(view);
  byId("answer").querySelector(".state, button").focus();
}

// Compute the outlooks again for the entered costs.
async function updateCosts() {
  const invalid = [...edited].some((name) => !byId(`cost-${name}`).checkValidity());
  if (invalid) {
    byId("cost-words").textContent = text("offer.cost_invalid");
    return;
  }
  lastRequest += 1;
  const request = lastRequest;
  const fresh = await fetchView().catch((error) => {
    byId("cost-words").replaceChildren(...errorWords(error));
    return null;
  });
  if (fresh !== null && request === lastRequest && view !== null && fresh.hash === view.hash) {
    view = { ...fresh, answer: view.answer ?? fresh.answer };
    showCosts(view);
  }
}

async function reload() {
  try {
    if (byId("sign").open) byId("sign").close();
    view = null;
    await load();
    alarm("");
  } catch (error) {
    showError(error);
  }
}

for (const name of ["labeling", "computing"]) {
  byId(`cost-${name}`).addEventListener("input", () => {
    edited.add(name);
    updateCosts();
  });
}
byId("sign-no").addEventListener("click", () => byId("sign").close());
watchDocuments("offer", (current, previous) => {
  if (current.offer !== previous.offer) reload();
  else if (current.answer !== previous.answer && view !== null) {
    view.answer = current.answer;
    showAnswer(view);
  }
});
await reload();
