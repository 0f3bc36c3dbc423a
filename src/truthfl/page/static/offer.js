// The offer: work, pay, costs, other behaviours compared with honest work, and the participant's answer.

import { NO_RESPONSE, RequestError, getJson, postJson } from "./api.js";
import { auditionWords, hardSamples, offerPlotWords, payLines, recipeWords } from "./audition.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { chance, count, duration, loss, money, number, parameter } from "./format.js";
import { plot } from "./plot.js";
import { watchDocuments } from "./new_documents.js";

const KINDS = { // by kind of lie: title and explanation
  honest: ["Honest work", "Look at every sample, use the whole batch, report what came out."],
  "fewer labels": ["Label fewer", "Train on those you labeled alone."],
  "random labels": ["Label at random", "Some by hand at most; the others get labels by chance."],
  "labels by machine": ["Let a machine label", "A model, or samples that are alike, label those that you do not."],
  "fabricated report": ["Make up your report", "Compute nothing; send something made of what you received."],
  "more labels": ["Label more", "More samples than you are asked for."],
  "other batch": ["Use another batch", "A smaller or a larger one."],
  "scaled report": ["Scale your report", "Send more or less than what came out."],
  "other recipe": ["Train alone in another way", "Longer, or otherwise than the offer says."],
};

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
  showAudition(view);
  showPay(view);
  showPrivacy(view);
  showSmallPrint(view);
  byId("cost-labeling").value = number(view.costs.labeling, 2).replaceAll(",", "");
  byId("cost-computing").value = number(view.costs.computing, 2).replaceAll(",", "");
  for (const unit of document.querySelectorAll(".unit")) unit.textContent = `(${view.offer.currency})`;
  showCosts(view);
  showAnswer(view);
}

function showTask({ offer, spread, audition, noun }) {
  byId("title").textContent = `An offer to ${offer.client}`;
  byId("again").hidden = offer.version === 1;
  const rounds = offer.participation < 1 ? `about ${Math.round(offer.participation * offer.rounds)} of ${offer.rounds}` : offer.rounds;
  const [label, then] = audition === null ? [`Label ${count(offer.samples, noun)}`, "Then your computer trains on them by itself"]
    : [`Label ${offer.samples.toLocaleString("en")} of your ${noun}s`, "Then your computer trains on them by itself: first alone, the audition, then together with the others"];
  byId("lead").textContent = `${label}, once, in ${offer.classes.length} classes. ` +
    `${then}, in ${rounds} rounds, each with a batch of ${offer.batch_size} drawn at random. ` +
    `You have ${duration(offer.label_seconds)} for the labels. ` +
    `Your ${noun}s and labels stay on this machine; below is what leaves it, and what can be learned from that.`;
  pairs(byId("facts"), [
    [audition === null ? `${noun}s` : `${noun}s to label`, offer.samples.toLocaleString("en")],
    ["batch size", offer.batch_size.toLocaleString("en")],
    ["rounds", offer.rounds.toLocaleString("en")],
    ["expected pay", money(spread.expected, offer), "key"],
  ]);
}

function showAudition(view) {
  byId("audition").hidden = view.audition === null;
  byId("hard-words").hidden = view.audition === null;
  byId("computing-what").textContent = view.audition === null ? "" : ": rounds and audition";
  if (view.audition === null) return;
  byId("audition-words").replaceChildren(...auditionWords(view));
  byId("hard-words").textContent = hardSamples(view);
}

function showPrivacy({ privacy, noun }) {
  byId("stay").textContent = `Your ${noun}s and your labels stay here. This is sent to the operator:`;
  byId("leaves").replaceChildren(...privacy.leaves.map((sentence) => make("li", {}, sentence)));
  byId("noise-words").textContent = privacy.noise_words;
}

function showPay(view) {
  const { offer, spread, explanation, audition } = view;
  byId("pay-words").replaceChildren(...explanation.map((words) => make("p", {}, words)));
  pairs(byId("pay-figures"), audition === null ? payFigures(offer, spread) : payLines(view));
  const words = audition === null ? plotWords(offer, spread) : offerPlotWords(view);
  plot(byId("plot"), { ...view.plot, words });
  byId("plot-words").textContent = `${words} In the shaded range end 19 of 20 honest ${audition === null ? "jobs" : "participants"}.`;
}

function payFigures(offer, spread) {
  const negative = [["chance of a negative amount", chance(spread.negative_chance)]];
  return [
    ["expected", money(spread.expected, offer)],
    ["give or take (standard deviation)", money(spread.deviation, offer)],
    ...(spread.zero_loss === null ? [] : negative),
    [worstCase(offer, spread), [money(spread.worst, offer), " ", make("small", {}, `at a loss of ${loss(spread.worst_loss)}`)]],
  ];
}

function plotWords(offer, spread) {
  return `The line is your pay by test loss: ${money(spread.expected, offer)} at the expected loss of ` +
    `${loss(offer.expected_loss)}` + (spread.zero_loss === null ? "." : `, nothing at ${loss(spread.zero_loss)}, below zero beyond.`);
}

function worstCase(offer, spread) {
  return spread.worst_loss > Math.log(offer.classes.length) ? "worst case: four standard deviations above the expected loss"
    : "worst case: the model learns nothing";
}

function showCosts({ offer, outlooks, costs }) {
  const [honest] = outlooks;
  const total = costs.labeling + costs.computing;
  byId("cost-words").textContent = `Honest work costs you ${money(total, offer)} and is expected to leave you ` +
    `${money(honest.left, offer)}. The chance that pay does not cover your costs is ${chance(honest.chance_below_cost)}.`;
  byId("lie-words").textContent = lieWords(offer, outlooks.slice(1));
  byId("behaviours").replaceChildren(...outlooks.map((outlook) => {
    const [kind, comparison] = comparedToHonest(outlook, offer);
    const [title, explanation] = KINDS[outlook.kind] ?? [outlook.kind, ""];
    const best = outlook.words ? `${explanation} Best found: ${outlook.words}.` : explanation;
    const what = outlook.stopped ? `${best} You would be stopped at the audition.` : best;
    return make("li", { class: kind },
      make("span", { class: "title" }, title), " ",
      make("span", { class: "left" }, money(outlook.left, offer)), " ",
      make("span", { class: "explanation" }, `${what} Paid ${money(outlook.pay, offer)}, costs ${money(outlook.cost, offer)}.`), " ",
      make("span", { class: "comparison" }, comparison));
  }));
}

// What was searched, and whether something was found that pays.
function lieWords(offer, lies) {
  if (lies.length === 0) return "Nobody searched for lies that pay under this contract, so nothing is known of them.";
  const paying = lies.filter((lie) => lie.difference > 2 * lie.difference_error && lie.difference >= 0.5 / offer.minor_units);
  const found = paying.length === 0 ? "None is known to leave you more than honest work. " :
    `${paying.length} ${paying.length === 1 ? "is" : "are"} known to leave you more than honest work: this contract does not make honesty your best choice. `;
  return `Before making this offer, the server tried ${count(offer.lies_tried, "lie")} in trainings on data of its own, the ` +
    `other clients being honest. This is the best of each kind. ${found}± covers 19 of 20 such trials; your own data may differ more.`;
}

// CSS class and text.
function comparedToHonest(outlook, offer) {
  if (outlook.kind === "honest") return ["honest", "left for you"];
  if (Math.abs(outlook.difference) < 0.5 / offer.minor_units) return ["same", "gains nothing"];
  const error = number(2 * outlook.difference_error, offer.minor_units > 1 ? 2 : 0); // 19 in 20
  const difference = `${money(outlook.difference, offer)} ± ${error}`;
  return outlook.difference > 0 ? ["more", `+${difference}`] : ["less", difference];
}

function showSmallPrint({ offer, audition, hash, fingerprints, noun }) {
  const code = (text) => make("span", { class: "code" }, text);
  pairs(byId("print"), [
    ["Job", `${offer.job}, offer ${offer.version} to ${offer.client}`],
    ["The formula", `${offer.formula}. ${payParameters(offer.pay)}; one ${offer.currency} is ${count(offer.minor_units, "unit")}.`],
    ["If you drop out", offer.dropping_out],
    ["Time", `${duration(offer.label_seconds)} to label, ${duration(offer.round_seconds)} for the report of a round` +
      (audition === null ? "." : `, ${duration(offer.audition_seconds)} for the model that you train alone.`)],
    ...(audition === null ? [] : [["Training alone", recipeWords(offer.recipe, noun)]]),
    ["The test", `The loss is averaged over ${offer.test_samples.toLocaleString("en")} draws from a test set. Which set and which draws is already fixed; this hash of it proves that nobody chose them afterwards:`],
    ["Commitment", code(offer.commitment)],
    ["This offer’s hash", code(hash)],
    ["Your key", code(fingerprints.yours)],
    ["The operator’s key", code(fingerprints.operator)],
  ]);
}

function payParameters(pay) {
  const words = Object.entries(pay).map(([name, value]) => `${name.replaceAll("_", " ")} ${parameter(value)}`).join(", ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function showAnswer({ offer, answer, noun, has_labels: hasLabels, cannot_sign: obstacle }) {
  const container = byId("answer");
  const words = {
    acceptance: ["You accepted this offer.", "Your signature is kept beside it. " +
      (hasLabels ? `Your ${noun}s have labels already: leave truthfl running.` : `Next: label your ${noun}s.`)],
    refusal: ["You declined this offer.", "Your signed answer is kept beside it. If there is another offer, it appears here."],
  }[answer];
  if (words) {
    const next = answer === "acceptance" && !hasLabels ? make("a", { class: "main", href: "label" }, "Start labeling") : null;
    container.replaceChildren(make("p", { class: "state", tabindex: "-1" }, words[0]), make("p", {}, words[1]), make("div", { class: "row" }, next));
    return;
  }
  if (obstacle) {
    container.replaceChildren(make("p", { class: "state" }, "It cannot be answered here."), make("p", {}, obstacle));
    return;
  }
  const accept = make("button", { type: "button", class: "main" }, "Accept");
  const decline = make("button", { type: "button", class: "plain" }, "Decline");
  accept.addEventListener("click", () => confirm(offer, true));
  decline.addEventListener("click", () => confirm(offer, false));
  container.replaceChildren(make("p", {}, "Your answer is signed with your key. The first answer to this offer is the one that counts."),
    make("div", { class: "row" }, accept, decline));
}

function confirm(offer, accepted) {
  byId("sign-title").textContent = accepted ? "Accept and sign?" : "Decline and sign?";
  byId("sign-words").textContent = accepted
    ? `You label ${count(offer.samples, view.noun)} and let your computer train, for the pay that the formula gives. This cannot be taken back.`
    : "The server goes on without you. This cannot be taken back.";
  byId("sign-yes").textContent = accepted ? "Sign: I accept" : "Sign: I decline";
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
    alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
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
    byId("cost-words").textContent = "A cost must be a number from 0 on.";
    return;
  }
  lastRequest += 1;
  const request = lastRequest;
  const fresh = await fetchView().catch((error) => {
    byId("cost-words").textContent = error.message;
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
    alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
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
