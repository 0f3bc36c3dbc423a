// What goes on in the job and how much time is left, in the header of every page; the steps until the receipt.

import { byId, make } from "./dom.js";
import { duration } from "./format.js";
import { text } from "./text.js";

const STEPS = ["labels", "others", "alone", "tested", "rounds", "final", "receipt"];
const ALONE = ["alone", "tested"]; // steps of an audition
const STEP_OF = { accepted: "labels", labeling: "labels", labeled: "others", alone: "alone", tested_alone: "tested", rounds: "rounds", final: "final" };

let job = null; // the last state of the job, and when it came
let heard = 0;
let wasSoon = false;

// state: of the job, as api/documents has it; null if the participant is in none
export function showJob(state) {
  job = state;
  heard = performance.now();
  showClock();
  showSteps();
}

setInterval(() => {
  if (job !== null && job.left !== null && !job.paused) showClock();
}, 1000);

function showClock() {
  const words = job === null ? [] : clockWords();
  const clock = byId("clock") ?? document.querySelector("header.top").appendChild(make("p", { class: "clock", id: "clock" }));
  const soon = job !== null && (job.soon || (job.left !== null && secondsLeft() === 0)) && !job.paused;
  clock.hidden = words.length === 0;
  clock.classList.toggle("soon", soon);
  if (clock.textContent !== words.join(" ")) clock.replaceChildren(make("strong", {}, words[0] ?? ""), words[1] ? ` ${words[1]}` : "");
  if (soon && !wasSoon) warn(words.join(" "));
  if (!soon && wasSoon) warn("");
  wasSoon = soon;
}

// Read aloud once; the clock itself changes every second.
function warn(words) {
  const element = byId("clock-warning") ?? byId("clock").insertAdjacentElement("afterend", make("p", { class: "unseen", id: "clock-warning", role: "status" }));
  element.textContent = words;
}

function secondsLeft() {
  return Math.max(0, job.left - (job.paused ? 0 : (performance.now() - heard) / 1000));
}

// What goes on, and what follows if the time runs out.
function clockWords() {
  const { stage, audition } = job;
  if (stage === "paid" || stage === "over") return [];
  if (job.paused) return [text("clock.paused")];
  if (stage === "accepted") return [text("clock.accepted", { time: duration(job.total) }), text(late(audition))];
  if (stage === "rounds") return [text("clock.rounds", { number: job.round, total: job.rounds })];
  if (job.left === null) return [text(`clock.stage.${stage}`)];
  if (stage === "labeling") {
    return [secondsLeft() === 0 ? text("clock.labeling_over") : text("clock.labeling", { time: duration(secondsLeft()) }), text(late(audition))];
  }
  return [text(`clock.stage.${stage}`), secondsLeft() === 0 ? "" : text("clock.at_most", { time: duration(secondsLeft()) })];
}

function late(audition) {
  return audition ? "clock.late_audition" : "clock.late";
}

// The steps until the receipt, in the element #steps of pages that have one.
function showSteps() {
  const list = byId("steps");
  if (list === null) return;
  const steps = STEPS.filter((step) => job?.audition || !ALONE.includes(step));
  const current = STEP_OF[job?.stage];
  list.hidden = current === undefined;
  if (list.hidden) return;
  const at = steps.indexOf(current);
  const words = steps.map((step) => (step === current && step === "rounds" ? text("steps.rounds_now", { number: job.round, total: job.rounds }) : text(`steps.${step}`)));
  if (list.dataset.words === `${at} ${words}`) return;
  list.dataset.words = `${at} ${words}`;
  list.replaceChildren(...words.map((word, i) =>
    make("li", { class: i < at ? "past" : i === at ? "now" : "later", "aria-current": i === at ? "step" : null },
      word, i < at ? make("span", { class: "unseen" }, ` ${text("steps.past")}`) : null)));
}
