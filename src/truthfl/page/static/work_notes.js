// Notes on the labeling page about all samples: which cannot be read, and which have labels of other classes.

import { byId, make } from "./dom.js";
import { parts, text } from "./text.js";

const MOST = 200; // reasons that are listed

export function listUnreadable(state, queue) {
  const reasons = [...state.problems, ...queue.unreadable.values()];
  const details = byId("unreadable");
  details.hidden = reasons.length === 0;
  details.querySelector("summary").textContent = text("label.unreadable", { count: reasons.length });
  details.querySelector("ul").replaceChildren(...reasons.slice(0, MOST).map((reason) => make("li", {}, ...parts(reason))));
}

// Say that there are labels of classes that are not asked for.
export function tellOtherClasses(state) {
  const names = Object.keys(state.other_classes);
  const count = Object.values(state.other_classes).reduce((sum, labels) => sum + labels, 0);
  byId("other-classes").hidden = count === 0;
  byId("other-classes").textContent = text("label.other_classes", { count, names: names.slice(0, 5).join(", ") });
}
