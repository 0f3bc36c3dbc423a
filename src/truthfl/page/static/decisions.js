// Decisions about samples: each is stored by the server, applied to the queue, and told to the other tabs. If a label was
// changed elsewhere, a dialog asks which of the two counts.

import { nonce, postUntilAnswered, showError } from "./api.js";
import { alarm, make } from "./dom.js";
import { isLabeled, namesOf } from "./labels.js";
import { text } from "./text.js";

const channel = new BroadcastChannel("truthfl decisions");

// result: the server's response to a decision
export function broadcastDecision(edition, result) {
  channel.postMessage({ edition, result });
}

export function onBroadcastDecision(edition, apply) {
  channel.addEventListener("message", ({ data }) => {
    if (data.edition === edition) apply(data.result);
  });
}

// A page from the browser's back/forward cache may be out of date.
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

export class Decisions {
  constructor(state, queue) {
    Object.assign(this, { state, queue });
  }

  // Each function returns the server's response, or null after an error, or if the participant keeps what another tab decided.
  decide(position, action, label) {
    const decision = { position, action, ...(action === "label" ? { label } : {}) };
    return this.answered(() => decideOrAsk(this.state, this.queue, decision));
  }

  // Give several samples the same label, or each its own list of classes; one undo takes it back for all of them.
  relabel(positions, label) {
    const seen = positions.map((at) => this.queue.labels[at]);
    return this.answered(() => this.post("api/decisions/bulk", { positions, label, seen }));
  }

  undo() {
    return this.answered(() => this.post("api/undo", {}), { undone: true });
  }

  post(path, fields) {
    return postUntilAnswered(path, { edition: this.state.edition, nonce: nonce(), ...fields }, alarm);
  }

  // more: what the other tabs are told besides the response
  async answered(request, more = {}) {
    try {
      const result = await request();
      if (result === null) return null;
      this.queue.apply(result);
      if (result.position !== null) broadcastDecision(this.state.edition, { ...result, ...more });
      return result;
    } catch (error) {
      for (const current of error.conflict ?? []) this.queue.apply(current);
      if (error.status === 409 && !error.conflict) location.reload();
      showError(error);
      return null;
    }
  }
}

// The server's response to a decision, or null if what another tab decided is kept.
// decision: position, action and, for a label, the number of its class, or a list of numbers
export async function decideOrAsk(state, queue, decision) {
  for (;;) {
    const seen = queue.labels[decision.position];
    try {
      return await postUntilAnswered("api/decisions", { edition: state.edition, nonce: nonce(), seen, ...decision }, alarm);
    } catch (error) {
      if (!error.conflict) throw error;
      const [current] = error.conflict;
      queue.apply(current);
      if (!(await takesHers(state.classes, current, decision))) return null;
    }
  }
}

// Ask in a dialog; whether this page's decision counts. Escape keeps what is stored.
function takesHers(classes, current, decision) {
  const mine = decision.action === "label" ? namesOf(decision.label, classes) : text("conflict.skip");
  const name = isLabeled(current.label) ? namesOf(current.label, classes) : undefined;
  const words = name === undefined ? text("conflict.unlabeled", { mine }) : text("conflict.labeled", { name, mine });
  const keep = make("button", { type: "button", class: "main", id: "conflict-keep" },
    name === undefined ? text("conflict.keep_none") : text("conflict.keep", { name }));
  const take = make("button", { type: "button", class: "plain", id: "conflict-take" }, text("conflict.take", { mine }));
  const dialog = make("dialog", { id: "conflict", "aria-labelledby": "conflict-words" },
    make("p", { id: "conflict-words" }, words), make("div", { class: "row" }, keep, take));
  document.body.append(dialog);
  return new Promise((resolve) => {
    keep.addEventListener("click", () => dialog.close());
    take.addEventListener("click", () => dialog.close("take"));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "take");
    });
    dialog.showModal();
    keep.focus();
  });
}
