// The receipt: pay, its calculation, and a check of the whole receipt on this machine.

import { errorWords, getJson, showError } from "./api.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { loss, money, percent, whole } from "./format.js";
import { watchDocuments } from "./job_news.js";
import { payPlot } from "./pay_plot.js";
import { jointWords, paidParts, receiptPlotWords, resultWords, roundsDelivered } from "./pay_words.js";
import { fill, message, parts, text } from "./text.js";

let hasAudition = false;

async function load() {
  const view = await getJson("api/receipt");
  byId("none").hidden = view.receipt !== null;
  byId("receipt").hidden = view.receipt === null || "trouble" in view;
  byId("checking").hidden = view.receipt === null;
  byId("print-box").hidden = byId("receipt").hidden;
  byId("verdict").replaceChildren();
  byId("verdict").className = "verdict";
  alarm("");
  if (view.trouble) showFault("receipt.cannot_show", view.trouble_message);
  else if (view.warning) showFault("receipt.contradicts", view.warning_message);
  if (byId("receipt").hidden) return;
  hasAudition = view.audition !== null;
  showPay(view);
  showCalculation(view);
  showSmallPrint(view);
}

function showFault(key, reason) {
  alarm(fill(key, { reason }));
}

function showPay(view) {
  const { offer, settlement, audition } = view;
  byId("title").textContent = text("receipt.title", { name: offer.client });
  byId("why").hidden = view.why_nothing.length === 0;
  byId("why").replaceChildren(make("strong", {}, text(settlement.pay < 0 ? "receipt.why_negative" : "receipt.why_nothing")),
    ...view.why_nothing.map((reason) => make("p", {}, ...parts(reason))));
  const own = audition === null ? [jointWords(view, offer.expected_loss), " ", roundsDelivered(settlement)] : resultWords(view);
  byId("lead").replaceChildren(...own);
  const right = view.accuracy === null ? [] : [[text("receipt.right"), percent(view.accuracy, 1)]];
  pairs(byId("facts"), [
    [text("receipt.pay"), money(view.paid, offer), settlement.pay < 0 ? "key minus" : "key"],
    ...(audition === null ? right : paidParts(view)),
    [text("receipt.rounds"), text("receipt.rounds_of", { delivered: settlement.delivered, total: settlement.asked })],
  ]);
}

function showCalculation(view) {
  const { offer, calculation } = view;
  const units = offer.minor_units;
  const rounded = text(units === 1 ? "receipt.rounded" : "receipt.rounded_to", { number: units });
  byId("sum").replaceChildren(...calculation.flatMap((step, i) => {
    const last = i === calculation.length - 1;
    const numbers = step.numbers.map(term).join(" ");
    return [
      make("p", { class: "words" }, ...parts(step.formula), last ? `, ${rounded}` : ""),
      make("p", { class: "line" }, numbers === "" ? "" : `${numbers} = `, make("b", {}, last ? money(view.paid, offer) : term(step.result))),
    ];
  }));
  const words = view.audition !== null ? receiptPlotWords(view)
    : text("receipt.plot_words", { pay: money(view.expected_pay, offer), loss: loss(view.loss) });
  payPlot(byId("plot"), { ...view.plot, words });
  byId("plot-words").textContent = words;
}

// A number, an operator or words of the calculation.
function term(one) {
  return typeof one === "string" ? one : message(one);
}

function showSmallPrint({ offer, offer_hash: hash, test, proved_entries: proved, common_hash: common, operator }) {
  const code = (words) => make("span", { class: "code" }, String(words));
  pairs(byId("print"), [
    [text("common.job"), offer.job],
    [text("receipt.print_offer"), code(hash)],
    [text("receipt.print_commitment"), code(offer.commitment)],
    [text("receipt.print_test"), [code(test.test_set), make("br"), code(test.samples), make("br"), code(test.secret)]],
    [text("receipt.print_proved"), whole(proved)],
    [text("receipt.print_common_hash"), code(common)],
    [text("common.operator_key"), code(operator)],
  ]);
}

async function check() {
  const verdict = byId("verdict");
  byId("check").disabled = true;
  try {
    const { fault_message: fault } = await getJson("api/receipt/check");
    verdict.className = `verdict ${fault === null ? "good" : "bad"}`;
    if (fault === null) {
      const checked = [text("receipt.checked_signature"), text("receipt.checked_acceptance"), text("receipt.checked_test"),
        text("receipt.checked_rounds"), text("receipt.checked_place"),
        ...(hasAudition ? [text("receipt.checked_audition")] : []), text("receipt.checked_sum")];
      verdict.replaceChildren(make("strong", {}, text("receipt.holds")), make("ul", {}, ...checked.map((item) => make("li", {}, item))));
    } else {
      verdict.replaceChildren(make("strong", {}, text("receipt.does_not_hold")), " ", ...parts(fault), ".");
    }
  } catch (error) {
    verdict.className = "verdict bad";
    verdict.replaceChildren(...errorWords(error));
  } finally {
    byId("check").disabled = false;
    byId("check").focus();
  }
}

async function reload() {
  try {
    await load();
  } catch (error) {
    showError(error);
  }
}

byId("check").addEventListener("click", check);
watchDocuments("receipt", (current, previous) => {
  if (current.receipt !== previous.receipt) reload();
});
await reload();
