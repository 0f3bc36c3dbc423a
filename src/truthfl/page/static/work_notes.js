// Notes on the labeling page about all samples: which cannot be read, and which have labels of other classes.

import { byId, make } from "./dom.js";
import { isLabeled } from "./label_value.js";
import { parts, text } from "./text.js";

const MOST = 200; // reasons that are listed

export function listUnreadable(state, queue) {
  const reasons = [...state.problems, ...queue.unreadable.values()];
  const details = byId("unreadable");
  details.hidden = reasons.length === 0;
  details.querySelector("summary").textContent = text("label.unreadable", { count: reasons.length });
  details.querySelector("ul").replaceChildren(...reasons.slice(0, MOST).map((reason) => make("li", {}, ...parts(reason))));
}

// Say that there are labels of classes that are not asked for, as long as no other decision has replaced them.
export function tellOtherClasses(state, queue) {
  const names = [];
  let count = 0;
  const skipped = queue.skippedSet();
  for (const [name, positions] of Object.entries(state.other_classes)) {
    const left = positions.filter((at) => !isLabeled(queue.labels[at]) && !skipped.has(at)).length;
    if (left > 0) names.push(name);
    count += left;
  }
  byId("other-classes").hidden = count === 0;
  byId("other-classes").textContent = text("label.other_classes", { count, names: names.slice(0, 5).join(", ") });
}
