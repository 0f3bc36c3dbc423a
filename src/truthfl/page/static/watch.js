// Papers may come while a page is open: look for them now and then, and say so.

import { ask } from "./api.js";
import { byId, make } from "./dom.js";

const EVERY = 2000;

// here: which page this is; it is not told of what it shows itself
// known: what lay there when the page was filled, if that is known
export function watchPapers(here, onChange = () => {}, known = null) {
  let first = known;
  let before = known;
  let timer = 0;
  async function look() {
    clearTimeout(timer);
    timer = setTimeout(look, EVERY);
    if (document.visibilityState !== "visible") return;
    try {
      const now = await ask("api/papers");
      first ??= now;
      announce(here, now, first);
      if (before !== null && JSON.stringify(now) !== JSON.stringify(before)) onChange(now, before);
      before = now;
    } catch {
      // the server is away; whoever asks for something else will say so
    }
  }
  if (known === null) look();
  else {
    announce(here, known, first);
    timer = setTimeout(look, EVERY);
  }
  document.addEventListener("visibilitychange", look);
}

function announce(here, now, first) {
  if (here !== "receipt" && now.receipt && now.receipt !== first.receipt) banner("Your receipt has come.", "receipt");
  else if (now.news) banner(now.news, "");
  else if (here !== "offer" && now.offer && !now.answer) banner("There is an offer for you to answer.", "offer");
  else banner("", "");
}

function banner(sentence, href) {
  const place = byId("banner");
  if (place.dataset.says === sentence) return;
  place.dataset.says = sentence;
  place.hidden = sentence === "";
  place.replaceChildren(`${sentence} `, href === "" ? "" : make("a", { href }, "Look at it"));
}
