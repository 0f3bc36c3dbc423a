// The offer: what is asked, what is paid, what it costs, what doing less would leave; and her answer.

import { Refused, SILENT, ask, tell } from "./api.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { chance, count, duration, fine, loss, money, number } from "./format.js";
import { plot } from "./plot.js";
import { watchPapers } from "./watch.js";

const WAYS = {
  truthful: ["Honest work", "Look at every picture, use the whole batch, report what came out."],
  "lazy labeler": ["Label at random", "Saves all the labeling."],
  "half batch": ["Use half the batch", "Saves half the computing."],
  exaggerator: ["Inflate your report", "Claims twice the change that came out; saves nothing."],
};
const ON_THE_LINE = { truthful: "honest work", "lazy labeler": "random labels", "half batch": "half the batch",
  exaggerator: "inflated report" };

let shown = null;
let latest = 0; // number of the last question; an answer to an earlier one is not shown
const edited = new Set();

async function load() {
  const fields = [...edited].map((name) => [name, byId(`cost-${name}`).value]);
  const entered = fields.filter(([, value]) => value !== "");
  const query = shown === null ? "" : `?${new URLSearchParams(entered)}`;
  return ask(`api/offer${query}`);
}

async function begin() {
  shown = await load();
  byId("none").hidden = shown.offer !== null;
  byId("offer").hidden = shown.offer === null;
  if (shown.offer === null) {
    shown = null;
    return;
  }
  edited.clear();
  tellTask(shown.offer, shown.spread);
  tellPay(shown);
  tellSmallPrint(shown.offer, shown);
  byId("cost-labeling").value = number(shown.costs.labeling, 2).replaceAll(",", "");
  byId("cost-computing").value = number(shown.costs.computing, 2).replaceAll(",", "");
  for (const unit of document.querySelectorAll(".unit")) unit.textContent = `(${shown.offer.currency})`;
  tellCosts(shown);
  tellAnswer(shown);
}

function tellTask(offer, spread) {
  byId("title").textContent = `An offer to ${offer.client}`;
  byId("again").hidden = offer.version === 1;
  const often = offer.participation < 1 ? `about ${Math.round(offer.participation * offer.rounds)} of ${offer.rounds}` : offer.rounds;
  byId("lead").textContent = `Label ${count(offer.samples, "picture")}, once, in ${offer.classes.length} classes. ` +
    `Then your computer trains on them by itself, in ${often} rounds, each with a batch of ${offer.batch_size} drawn at random. ` +
    `You have ${duration(offer.label_seconds)} for the labels. ` +
    "Your pictures and labels stay on this machine; only the trained model’s numbers leave it.";
  pairs(byId("facts"), [
    ["pictures", offer.samples.toLocaleString("en")],
    ["batch size", offer.batch_size.toLocaleString("en")],
    ["rounds", offer.rounds.toLocaleString("en")],
    ["expected pay", money(spread.expected, offer), "key"],
  ]);
}

function tellPay({ offer, spread, explanation, outlooks, plot: drawn }) {
  byId("pay-words").textContent = explanation.join(" ");
  pairs(byId("pay-figures"), [
    ["expected", money(spread.expected, offer)],
    ["give or take (standard deviation)", money(spread.deviation, offer)],
    ["chance of a negative amount", chance(spread.negative_chance)],
    [worstCase(offer, spread), [money(spread.worst, offer), " ", make("small", {}, `at a loss of ${loss(spread.worst_loss)}`)]],
  ]);
  const words = `The line is your pay by test loss: ${money(spread.expected, offer)} at the expected loss of ` +
    `${loss(offer.expected_loss)}` + (spread.zero_loss === null ? "." : `, nothing at ${loss(spread.zero_loss)}, below zero beyond.`);
  const points = outlooks.map((way, k) => ({ ...drawn.points[k], name: ON_THE_LINE[way.name], key: way.name === "truthful" }));
  plot(byId("plot"), { ...drawn, points, words, unit: offer.currency });
  byId("plot-words").textContent = `${words} In the shaded range end 19 of 20 honest jobs.`;
}

function worstCase(offer, spread) {
  return spread.worst_loss > Math.log(offer.classes.length) ? "worst case: four standard deviations above the expected loss"
    : "worst case: the model learns nothing";
}

function tellCosts({ offer, outlooks, costs }) {
  const [honest] = outlooks;
  const total = costs.labeling + costs.computing;
  byId("cost-words").textContent = `Honest work costs you ${money(total, offer)} and is expected to leave you ` +
    `${money(honest.left, offer)}. The chance that pay does not cover your costs is ${chance(honest.chance_below_cost)}.`;
  byId("ways").replaceChildren(...outlooks.map((way) => {
    const [what, how] = WAYS[way.name];
    const [kind, beside] = besideHonest(way, offer);
    return make("li", { class: kind },
      make("span", { class: "what" }, what), " ",
      make("span", { class: "left" }, money(way.left, offer)), " ",
      make("span", { class: "how" }, `${how} Paid ${money(way.pay, offer)}, costs ${money(way.cost, offer)}.`), " ",
      make("span", { class: "beside" }, beside));
  }));
}

function besideHonest(way, offer) {
  if (way.name === "truthful") return ["honest", "left for you"];
  if (Math.abs(way.difference) < 0.5 / offer.minor_units) return ["same", "gains nothing"];
  const difference = money(way.difference, offer);
  return way.difference > 0 ? ["more", `+${difference}`] : ["less", difference];
}

function tellSmallPrint(offer, { hash, fingerprints }) {
  const code = (text) => make("span", { class: "code" }, text);
  pairs(byId("print"), [
    ["Job", `${offer.job}, offer ${offer.version} to ${offer.client}`],
    ["The formula", `${offer.formula}. ${terms(offer.pay)}; one ${offer.currency} is ${count(offer.minor_units, "unit")}.`],
    ["If you drop out", offer.dropping_out],
    ["Time", `${duration(offer.label_seconds)} to label, ${duration(offer.round_seconds)} for the report of a round.`],
    ["The test", `The loss is averaged over ${offer.test_samples.toLocaleString("en")} draws from a test set. Which set and which draws is already fixed; this hash of it proves that nobody chose them afterwards:`],
    ["Commitment", code(offer.commitment)],
    ["This offer’s hash", code(hash)],
    ["Your key", code(fingerprints.yours)],
    ["The operator’s key", code(fingerprints.operator)],
  ]);
}

function terms(pay) {
  const words = Object.entries(pay).map(([name, value]) => `${name.replaceAll("_", " ")} ${fine(value)}`).join(", ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function tellAnswer({ offer, answer, given, cannot_sign: why }) {
  const place = byId("answer");
  const words = {
    acceptance: ["You accepted this offer.", "Your signature is kept beside it. " +
      (given ? "Your pictures have labels already: leave truthfl running." : "Next: label your pictures.")],
    refusal: ["You declined this offer.", "Your signed answer is kept beside it. If there is another offer, it appears here."],
  }[answer];
  if (words) {
    const next = answer === "acceptance" && !given ? make("a", { class: "main", href: "label" }, "Start labeling") : null;
    place.replaceChildren(make("p", { class: "state", tabindex: "-1" }, words[0]), make("p", {}, words[1]), make("div", { class: "row" }, next));
    return;
  }
  if (why) {
    place.replaceChildren(make("p", { class: "state" }, "It cannot be answered here."), make("p", {}, why));
    return;
  }
  const accept = make("button", { type: "button", class: "main" }, "Accept");
  const decline = make("button", { type: "button", class: "plain" }, "Decline");
  accept.addEventListener("click", () => confirm(offer, true));
  decline.addEventListener("click", () => confirm(offer, false));
  place.replaceChildren(make("p", {}, "Your answer is signed with your key. The first answer to this offer is the one that counts."),
    make("div", { class: "row" }, accept, decline));
}

function confirm(offer, accepted) {
  byId("sign-title").textContent = accepted ? "Accept and sign?" : "Decline and sign?";
  byId("sign-words").textContent = accepted
    ? `You label ${count(offer.samples, "picture")} and let your computer train, for the pay that the formula gives. This cannot be taken back.`
    : "The server goes on without you. This cannot be taken back.";
  byId("sign-yes").textContent = accepted ? "Sign: I accept" : "Sign: I decline";
  const meant = shown.hash;
  byId("sign-yes").onclick = () => answer(meant, accepted);
  byId("sign").showModal();
}

async function answer(meant, accepted) {
  byId("sign-yes").disabled = true;
  try {
    const said = await tell("api/answer", { offer: meant, accepted });
    if (shown.hash === meant) shown.answer = said.answer;
    alarm("");
  } catch (error) {
    alarm(error instanceof Refused ? error.message : SILENT);
  } finally {
    byId("sign-yes").disabled = false;
    byId("sign").close();
  }
  tellAnswer(shown);
  byId("answer").querySelector(".state, button").focus();
}

async function follow() {
  const wrong = [...edited].some((name) => !byId(`cost-${name}`).checkValidity());
  if (wrong) {
    byId("cost-words").textContent = "A cost must be a number from 0 on.";
    return;
  }
  latest += 1;
  const asked = latest;
  const now = await load().catch((error) => {
    byId("cost-words").textContent = error.message;
    return null;
  });
  if (now !== null && asked === latest && shown !== null && now.hash === shown.hash) {
    shown = { ...now, answer: shown.answer ?? now.answer };
    tellCosts(shown);
  }
}

async function restart() {
  try {
    if (byId("sign").open) byId("sign").close();
    shown = null;
    await begin();
    alarm("");
  } catch (error) {
    alarm(error instanceof Refused ? error.message : SILENT);
  }
}

for (const name of ["labeling", "computing"]) {
  byId(`cost-${name}`).addEventListener("input", () => {
    edited.add(name);
    follow();
  });
}
byId("sign-no").addEventListener("click", () => byId("sign").close());
watchPapers("offer", (now, before) => {
  if (now.offer !== before.offer) restart();
  else if (now.answer !== before.answer && shown !== null) {
    shown.answer = now.answer;
    tellAnswer(shown);
  }
});
await restart();
