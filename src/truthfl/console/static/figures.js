// Plots and numbers of the joint model, money and plan.

import { byId, pairs } from "./dom.js";
import { amount, loss, number, percent, whole } from "./format.js";
import { barPlot, linePlot, placesFor, roundRange } from "./plot.js";

const MOST_BARS = 20;
const MOST_POINTS = 400;

export function showCurve({ rounds: trained, round_zero: zero, rounds_planned: planned, plan }) {
  const rounds = zero === null ? trained : [zero, ...trained];
  const last = rounds[rounds.length - 1];
  const measured = rounds.findLast((one) => one.loss !== null);
  byId("curve-none").hidden = rounds.length > 0;
  byId("curve-now").textContent = last === undefined ? "" :
    `round ${whole(last.round)} of ${whole(planned ?? last.round)}${measured === undefined ? "" : measuredWords(measured, last)}`;
  const x = { title: "round", from: 0, to: Math.max(planned ?? 1, last?.round ?? 1, 1), places: 0 };
  curve("loss-plot", rounds, "loss", (value) => value, { x, title: "test loss", height: 230, kind: "accent",
    across: plan === null ? null : { y: plan.expected_loss, name: `expected ${number(plan.expected_loss, 3)}` } });
  curve("accuracy-plot", rounds, "accuracy", (value) => 100 * value, { x, title: "accuracy, %", height: 170, kind: "second",
    across: null });
}

// Not every round is tested.
function measuredWords(measured, last) {
  const when = measured.round === last.round ? "" : ` after round ${whole(measured.round)}`;
  return `: loss ${loss(measured.loss)}${measured.accuracy === null ? "" : `, accuracy ${percent(measured.accuracy, 1)}`}${when}`;
}

function curve(id, rounds, name, scaled, { x, title, height, kind, across }) {
  const points = thinned(rounds.filter((one) => one[name] !== null)).map((one) => [one.round, scaled(one[name])]);
  byId(id).hidden = points.length === 0;
  if (points.length === 0) return;
  const values = points.map(([, value]) => value);
  const [from, to] = roundRange(across === null ? values : [...values, across.y]);
  const [first, end] = [points[0], points[points.length - 1]];
  linePlot(byId(id), { lines: [{ points, kind }], across, x, y: { title, from, to, places: placesFor(from, to) }, height,
    words: `${title} by round: ${number(first[1], 2)} after round ${first[0]}, ${number(end[1], 2)} after round ${end[0]}` });
}

function thinned(rounds) {
  const step = Math.ceil(rounds.length / MOST_POINTS);
  return step <= 1 ? rounds : rounds.filter((_, at) => at % step === 0 || at === rounds.length - 1);
}

export function showMoney({ money }) {
  byId("money-none").hidden = money !== null;
  byId("money-plot").hidden = money === null;
  byId("money").hidden = byId("money-words").hidden = money === null;
  byId("money-unit").textContent = money === null ? "" : `in ${money.currency}`;
  if (money === null) return;
  const value = (number_) => amount(number_, money);
  const bars = [[money.has_cap ? "worst case" : "at loss 0", money.most, "most"], ["expected", money.expected, ""], ["accepted", money.committed, ""],
    ["settled", money.settled, "good"], ["paid", money.settled === null ? null : money.paid, "good"]].filter(([, sum]) => sum !== null);
  const most = Math.max(...bars.map(([, sum]) => sum), 1);
  barPlot(byId("money-plot"), { most, bars: bars.map(([name, sum, kind]) => ({ name, value: sum, text: value(sum), marks: [], kind })),
    words: bars.map(([name, sum]) => `${name} ${value(sum)}`).join(", ") });
  byId("money-words").textContent = moneyWords(money);
  pairs(byId("money"), [
    ["what the work costs those who do it", value(money.cost)],
    ...(money.settled === null ? [] : [["settled, not sent", value(money.due)], ["sent, not confirmed", value(money.sent)]]),
    ...(money.failed > 0 ? [["failed; to be sent again", value(money.failed), "bad"]] : []),
  ]);
}

function moneyWords({ has_cap: hasCap }) {
  return hasCap ? "Expected: if all are honest. Accepted: of those who have a contract. Worst case: the caps; you can never owe more."
    : "Expected: if all are honest. Accepted: of those who have a contract. This contract has no cap; a perfect model would cost what stands first.";
}

export function showPlan(status) {
  const { plan, participants: people, money } = status;
  byId("plan-none").hidden = plan !== null;
  byId("plan-plots").hidden = plan === null;
  byId("plan-words").textContent = plan === null ? "" : planWords(plan, money);
  if (plan === null) return;
  showSolo(plan, people);
  showWorth(people, money);
}

function planWords(plan, money) {
  const { contract, labels, asked, step_size: step, expected_loss: expected, loss_error: error, version, worth_of_all: worth } = plan;
  const range = (position) => {
    const values = asked.map((one) => one[position]);
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return low === high ? whole(low) : `${whole(low)} to ${whole(high)}`;
  };
  const again = version > 1 ? `, version ${version}` : "";
  return `contract ${contract}${again}: ${whole(labels)} labels, ${range(0)} of each; batches of ${range(1)}; step size ${Number(step.toPrecision(3))}; ` +
    `expected loss ${loss(expected)} ± ${loss(error)}` +
    (worth === null || money === null ? "" : `; all work together is worth ${amount(worth, money)} ${money.currency} to you`);
}

function showSolo({ solo_labels: labels, solo_loss: losses }, people) {
  const container = byId("solo-plot");
  container.parentElement.hidden = labels.length === 0;
  if (labels.length === 0) return;
  const tested = people.filter((one) => one.solo_loss !== null);
  const points = tested.map((one) => ({ x: one.labels_asked, y: one.solo_loss, kind: one.passed ? "good" : "bad",
    name: `${one.name}: ${loss(one.solo_loss)} with ${whole(one.labels_asked)} labels${one.passed ? "" : ", stopped"}` }));
  const [from, to] = roundRange([...losses, ...points.map(({ y }) => y)], 0);
  const [, most] = roundRange([...labels, ...points.map(({ x }) => x)], 0);
  linePlot(container, { lines: [{ points: labels.map((count, at) => [count, losses[at]]), kind: "accent" }], points, height: 240,
    x: { title: "labels", from: 0, to: most, places: 0 }, y: { title: "loss of a model trained alone", from, to, places: placesFor(from, to) },
    words: `Loss of models trained alone: ${loss(losses[0])} with ${whole(labels[0])} labels, ${loss(losses[losses.length - 1])} with ` +
      `${whole(labels[labels.length - 1])}. ${points.map(({ name }) => name).join("; ")}` });
}

function showWorth(people, money) {
  const valued = people.filter((one) => one.worth !== null);
  const container = byId("worth-plot");
  container.parentElement.hidden = valued.length === 0 || money === null;
  if (container.parentElement.hidden) return;
  const most = Math.max(...valued.map((one) => Math.max(one.worth, one.expected_pay)), 1);
  const shown = valued.slice(0, MOST_BARS);
  const more = valued.length > MOST_BARS ? ` ${whole(valued.length - MOST_BARS)} more are not shown.` : "";
  byId("worth-more").textContent = `Bars: worth, ${money.currency}. Marks: cost of the work (thin), expected pay (thick).${more}`;
  barPlot(container, { most, bars: shown.map((one) => ({ name: one.name, value: one.worth, text: amount(one.worth, money),
    kind: one.worth < one.cost ? "bad" : "", marks: [{ value: one.cost, kind: "cost" }, { value: one.expected_pay, kind: "pay" }] })),
    words: shown.map((one) => `${one.name}: worth ${amount(one.worth, money)}, cost ${amount(one.cost, money)}, expected pay ${amount(one.expected_pay, money)}`).join("; ") });
}
