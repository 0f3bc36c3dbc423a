// The receipt: what was paid and why, and a check of all of it on this machine.

import { Refused, SILENT, ask } from "./api.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { loss, money, number } from "./format.js";
import { plot } from "./plot.js";
import { watchPapers } from "./watch.js";

async function begin() {
  const shown = await ask("api/receipt");
  byId("none").hidden = shown.receipt !== null;
  byId("receipt").hidden = shown.receipt === null || "trouble" in shown;
  byId("checking").hidden = shown.receipt === null;
  byId("print-box").hidden = byId("receipt").hidden;
  byId("verdict").replaceChildren();
  byId("verdict").className = "verdict";
  if (shown.trouble) alarm(`The receipt cannot be shown: ${shown.trouble}`);
  else alarm("");
  if (byId("receipt").hidden) return;
  tellPay(shown);
  tellSum(shown);
  tellSmallPrint(shown);
}

function tellPay(shown) {
  const { offer, settlement } = shown;
  byId("title").textContent = `Receipt for ${offer.client}`;
  const all = settlement.delivered === settlement.asked;
  byId("lead").textContent = `The model ended at a test loss of ${loss(shown.loss)}; ${loss(offer.expected_loss)} was expected. ` +
    (all ? `All your ${settlement.asked} reports were taken.` : `${settlement.delivered} of your ${settlement.asked} reports were taken.`) +
    (settlement.pay < 0 ? " The amount is negative: the model came out worse than the offer allows for." : "");
  pairs(byId("facts"), [
    ["your pay", shown.paid, settlement.pay < 0 ? "key minus" : "key"],
    ["test loss", loss(shown.loss)],
    ...(shown.accuracy === null ? [] : [["right in the test", `${number(100 * shown.accuracy, 1)}%`]]),
    ["reports taken", `${settlement.delivered} of ${settlement.asked}`],
  ]);
}

function tellSum(shown) {
  const { offer } = shown;
  byId("sum").replaceChildren(...shown.calculation.flatMap((step) => [
    make("p", { class: "words" }, step.formula),
    make("p", { class: "line" }, step.numbers === "" ? "" : `${step.numbers} = `, make("b", {}, step.result)),
  ]));
  const words = `The offer’s line of pay: ${money(shown.expected_pay, offer)} was expected, and the job ended at ${loss(shown.loss)}.`;
  const named = [{ name: "expected", key: false }, { name: "this job", key: true }];
  const points = shown.plot.points.map((point, k) => ({ ...point, ...named[k] }));
  plot(byId("plot"), { ...shown.plot, points, words, unit: offer.currency });
  byId("plot-words").textContent = words;
}

function tellSmallPrint({ offer, offer_hash: hash, test, links, last_link: last, operator }) {
  const code = (text) => make("span", { class: "code" }, String(text));
  pairs(byId("print"), [
    ["Job", offer.job],
    ["Offer’s hash", code(hash)],
    ["Commitment, from the offer", code(offer.commitment)],
    ["It is the hash of this test set, number of draws and secret",
      [code(test.test_set), make("br"), code(test.samples), make("br"), code(test.secret)]],
    ["Links of the ledger’s chain", `${links}, the last of them:`],
    ["Last link", code(last)],
    ["The operator’s key", code(operator)],
  ]);
}

async function check() {
  const verdict = byId("verdict");
  byId("check").disabled = true;
  try {
    const { fault } = await ask("api/receipt/check");
    verdict.className = `verdict ${fault === null ? "good" : "bad"}`;
    if (fault === null) {
      const held = ["the operator’s signature, over every byte", "your acceptance, signed with your key, of the offer on your desk",
        "the test, which is the one committed to before training", "the chain, link by link", "the sum"];
      verdict.replaceChildren(make("strong", {}, "Everything holds."), make("ul", {}, ...held.map((one) => make("li", {}, one))));
    } else {
      verdict.replaceChildren(make("strong", {}, "This receipt does not hold: "), `${fault}.`);
    }
  } catch (error) {
    verdict.className = "verdict bad";
    verdict.replaceChildren(error instanceof Refused ? error.message : SILENT);
  } finally {
    byId("check").disabled = false;
    byId("check").focus();
  }
}

async function restart() {
  try {
    await begin();
  } catch (error) {
    alarm(error instanceof Refused ? error.message : SILENT);
  }
}

byId("check").addEventListener("click", check);
watchPapers("receipt", (now, before) => {
  if (now.receipt !== before.receipt) restart();
});
await restart();
