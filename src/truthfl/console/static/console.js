// The operator's page: asks for the job's status every second and shows what has changed.

import { RequestError, watchServer } from "./api.js";
import { showActions } from "./actions.js";
import { alarm, byId, make, pairs } from "./dom.js";
import { showCurve, showMoney, showPlan } from "./figures.js";
import { logTime, loss, number, ofAll, percent, span } from "./format.js";
import { showAges, showParticipants, showRefused, showRows } from "./tables.js";

const NAMES_TOLD = 5; // of those for whom a round waits
const STAGES = ["enrolling", "planning", "approving", "offering", "labeling", "auditioning", "deciding", "training", "testing", "over"];
const PARTS = [ // what is shown, and the fields of the status that it depends on
  [showParticipants, ["participants", "money", "running"]],
  [showCurve, ["rounds", "round_zero", "rounds_planned", "plan"]],
  [showMoney, ["money"]],
  [showPlan, ["plan", "participants", "money"]],
  [showRows, ["rows", "last_row", "unreadable_rows"]],
  [showRefused, ["participants", "strangers", "connections", "refused_at"]],
  [showActions, ["over", "paused", "ended", "can_act", "extendable", "invitable", "asks_address", "participants", "waiting"]],
];

const shown = new Map(); // by function: its fields as text
let version = "";
let status = null;
let ahead = 0; // of the page's clock, in milliseconds
let lastAnswer = null;

function take(news) {
  ahead = Date.now() - Date.parse(news.now);
  lastAnswer = news.now;
  version = news.version;
  alarm("");
  document.body.classList.remove("stale");
  if (news.status !== null) show(news.status);
}

function tellLost(error) {
  document.body.classList.add("stale");
  const since = lastAnswer === null ? "" : ` What you see is of ${logTime(lastAnswer)}.`;
  if (error instanceof RequestError) alarm(`${error.message}${since}`);
  else alarm(`This page’s server does not answer; the job itself may go on.${since} Start truthfl console again, and open the link that it prints.`);
}

function show(newest) {
  status = newest;
  byId("main").hidden = false;
  document.title = `${status.stage} · ${status.job} · truthfl`;
  byId("job").textContent = status.job;
  showServer();
  showStages();
  showTiles();
  for (const [part, fields] of PARTS) {
    const text = JSON.stringify(fields.map((field) => status[field]));
    if (shown.get(part) === text) continue;
    shown.set(part, text);
    part(status);
  }
  showClock();
}

function showServer() {
  const [kind, words] = status.over ? ["over", "the job is over"] : status.running ? ["on", `server runs${status.address ? ` at ${status.address}` : ""}`] : ["off", "server is down"];
  byId("server").replaceChildren(make("span", { class: `dot ${kind}`, "aria-hidden": "true" }), words);
  const banner = byId("banner");
  const message = status.over || status.running ? pauseWords() : "No server runs this job: nobody can connect, and nothing goes on. Give the truthfl serve command again; it goes on where it was.";
  banner.className = status.over || status.running ? "banner" : "banner down";
  banner.hidden = message === "";
  if (banner.textContent !== message) banner.textContent = message;
}

function waitWords({ names, round, at, until }) {
  const more = names.length > NAMES_TOLD ? ` and ${names.length - NAMES_TOLD} more` : "";
  return `Round ${round} waits for ${names.slice(0, NAMES_TOLD).join(", ")}${more}, since ${logTime(at)}, until ${logTime(until)} at most. Whoever is there loses nothing by it.`;
}

function pauseWords() {
  if (status.ended !== null) return `You ended the job: ${status.ended}.`;
  if (status.paused) return "The job is paused; nothing is asked of anybody until you resume it.";
  return status.waits === null ? "" : waitWords(status.waits);
}

function showStages() {
  const at = STAGES.indexOf(status.stage);
  byId("stages").replaceChildren(...STAGES.map((name, position) => make("li", {
    class: position < at ? "done" : position === at ? "now" : null, "aria-current": position === at ? "step" : null }, name)));
}

function showTiles() {
  const { participants: people, rounds, round_zero: zero, rounds_planned: planned, money, test } = status;
  const sum = (name) => people.reduce((total, one) => total + (one[name] ?? 0), 0);
  const last = test ?? rounds.findLast((one) => one.loss !== null) ?? zero;
  const tiles = [
    ["connected", status.running ? ofAll(people.filter((one) => one.connected).length, people.length) : "–", "participants"],
    ["accepted", ofAll(people.filter((one) => one.answer === "accepted").length, people.length), "participants"],
    ["labels", sum("labels_asked") > 0 ? ofAll(sum("labels_done"), sum("labels_asked")) : "–", "made of asked"],
    ["rounds", planned === null ? "–" : ofAll(rounds.length, planned), medianWords(status.round_times.last)],
    [test === null ? "loss" : "test loss", last === null ? "–" : loss(last.loss), last === null ? "" : `accuracy ${percent(last.accuracy, 1)}`],
    money !== null && money.settled !== null
      ? ["settled", number(money.settled, 2, 0), money.currency]
      : ["expected pay", money === null ? "–" : number(money.expected, 0), money === null ? "" : money.currency],
  ];
  const text = JSON.stringify(tiles);
  if (shown.get(showTiles) === text) return;
  shown.set(showTiles, text);
  pairs(byId("tiles"), tiles.map(([name, value, unit]) => [name, [value, make("small", {}, unit)]]));
}

function medianWords(times) {
  if (times.length === 0) return "";
  const median = [...times].sort((a, b) => a - b)[Math.floor(times.length / 2)];
  return `median ${median < 1 ? `${Math.round(1000 * median)} ms` : `${median.toFixed(1)} s`} each`;
}

function showClock() {
  if (status === null) return;
  const now = Date.now() - ahead;
  const since = status.since === null ? "" : `since ${logTime(status.since)}, ${span((now - Date.parse(status.since)) / 1000)} ${status.over ? "ago" : ""}`;
  const left = status.deadline === null ? null : (Date.parse(status.deadline) - now) / 1000;
  const until = left === null ? "" : left > 0 ? `${span(left)} left, until ${logTime(status.deadline)}` : `time was up at ${logTime(status.deadline)}`;
  byId("clock").replaceChildren(make("b", {}, status.paused ? `${status.stage}, paused` : status.stage), ` ${since.trim()}`,
    until === "" ? "" : make("span", { class: "left" }, until));
  showAges(now);
}

setInterval(showClock, 1000);
watchServer(() => `api/status?seen=${version}`, take, tellLost)();
