// Papers may come while the page is open: look for them now and then, and say so.

import { ask } from "/static/api.js";
import { byId, make } from "/static/dom.js";

const EVERY = 2000;

export function watchPapers(onChange) {
  let before = null;
  let timer = 0;
  async function look() {
    clearTimeout(timer);
    timer = setTimeout(look, EVERY);
    if (document.visibilityState !== "visible") return;
    try {
      const now = await ask("/api/papers");
      if (before !== null && JSON.stringify(now) !== JSON.stringify(before)) onChange(now, before);
      before = now;
    } catch {
      // the server is away; whoever asks for something else will say so
    }
  }
  look();
  document.addEventListener("visibilitychange", look);
}

export function announce(now, before) {
  if (now.receipt && now.receipt !== before.receipt) banner("Your receipt has come.", "/receipt", "Look at it");
  else if (now.offer && now.offer !== before.offer) banner("A new offer has come.", "/offer", "Look at it");
}

function banner(sentence, href, words) {
  const place = byId("banner");
  place.hidden = false;
  place.replaceChildren(`${sentence} `, make("a", { href }, words));
}
