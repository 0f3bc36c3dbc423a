// Decisions about samples whose label was changed elsewhere: a dialog asks which of the two counts.

import { nonce, postUntilAnswered } from "./api.js";
import { alarm, make } from "./dom.js";
import { isLabeled, namesOf } from "./label_value.js";
import { text } from "./text.js";

// The server's response to a decision, or null if the participant keeps what another tab decided.
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
      if (!(await takesMine(state.classes, current, decision))) return null;
    }
  }
}

// Ask in a dialog; whether the participant takes this tab's decision. Escape keeps what is stored.
function takesMine(classes, current, decision) {
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
