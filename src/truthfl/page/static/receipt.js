// The receipt: pay, its calculation, and a check of the whole receipt on this machine.

import { NO_RESPONSE, RequestError, getJson } from "./api.js";
import { receiptPlotWords, reportsTaken, resultWords } from "./audition.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { loss, money, number } from "./format.js";
import { plot } from "./plot.js";
import { watchDocuments } from "./new_documents.js";

let hasAudition = false;

async function load() {
  const view = await getJson("api/receipt");
  byId("none").hidden = view.receipt !== null;
  byId("receipt").hidden = view.receipt === null || "trouble" in view;
  byId("checking").hidden = view.receipt === null;
  byId("print-box").hidden = byId("receipt").hidden;
  byId("verdict").replaceChildren();
  byId("verdict").className = "verdict";
  if (view.trouble) alarm(`The receipt cannot be shown: ${view.trouble}`);
  else alarm(view.warning ? `This receipt contradicts what your computer kept: ${view.warning}.` : "");
  if (byId("receipt").hidden) return;
  hasAudition = view.audition !== null;
  showPay(view);
  showCalculation(view);
  showSmallPrint(view);
}

function showPay(view) {
  const { offer, settlement, audition } = view;
  byId("title").textContent = `Receipt for ${offer.client}`;
  byId("lead").textContent = audition === null ? jobWords(view) : resultWords(view);
  const right = view.accuracy === null ? [] : [["right in the test", `${number(100 * view.accuracy, 1)}%`]];
  pairs(byId("facts"), [
    ["your pay", view.paid, settlement.pay < 0 ? "key minus" : "key"],
    ...(audition === null ? [["test loss", loss(view.loss)], ...right] : [["for labels", audition.labels], ["for computing", audition.computing]]),
    ["reports taken", `${settlement.delivered} of ${settlement.asked}`],
  ]);
}

function jobWords({ offer, settlement, loss: testLoss }) {
  return `The model ended at a test loss of ${loss(testLoss)}; ${loss(offer.expected_loss)} was expected. ` + reportsTaken(settlement) +
    (settlement.pay < 0 ? " The amount is negative: the model came out worse than the offer allows for." : "");
}

function showCalculation(view) {
  const { offer } = view;
  byId("sum").replaceChildren(...view.calculation.flatMap((step) => [
    make("p", { class: "words" }, step.formula),
    make("p", { class: "line" }, step.numbers === "" ? "" : `${step.numbers} = `, make("b", {}, step.result)),
  ]));
  const words = view.audition !== null ? receiptPlotWords(view)
    : `The offer’s line of pay: ${money(view.expected_pay, offer)} was expected, and the job ended at ${loss(view.loss)}.`;
  plot(byId("plot"), { ...view.plot, words });
  byId("plot-words").textContent = words;
}

function showSmallPrint({ offer, offer_hash: hash, test, links, last_link: last, operator }) {
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
    const { fault } = await getJson("api/receipt/check");
    verdict.className = `verdict ${fault === null ? "good" : "bad"}`;
    if (fault === null) {
      const checked = ["the operator’s signature, over every byte", "your acceptance, signed with your key, of the offer in your folder",
        "the test, which is the one committed to before training, of the final model that you signed for",
        "your rounds: every report that this computer sent is counted", "the chain, link by link",
        ...(hasAudition ? ["your audition, as it stands in the chain"] : []), "the sum"];
      verdict.replaceChildren(make("strong", {}, "Everything holds."), make("ul", {}, ...checked.map((item) => make("li", {}, item))));
    } else {
      verdict.replaceChildren(make("strong", {}, "This receipt does not hold: "), `${fault}.`);
    }
  } catch (error) {
    verdict.className = "verdict bad";
    verdict.replaceChildren(error instanceof RequestError ? error.message : NO_RESPONSE);
  } finally {
    byId("check").disabled = false;
    byId("check").focus();
  }
}

async function reload() {
  try {
    await load();
  } catch (error) {
    alarm(error instanceof RequestError ? error.message : NO_RESPONSE);
  }
}

byId("check").addEventListener("click", check);
watchDocuments("receipt", (current, previous) => {
  if (current.receipt !== previous.receipt) reload();
});
await reload();
