// Whether truthfl answers on this computer, and the operator's server to it: asked every second while the page is seen.

import { NO_RESPONSE, RequestError, getJson } from "./api.js";
import { alarm, byId, make } from "./dom.js";
import { timeOfDay } from "./format.js";
import { text } from "./text.js";

const INTERVAL_MS = 1000;
const TIMEOUT_MS = 1500; // with the interval less than 3 seconds

// path: of the state to ask for; take: called with each new one
export function watchServer(path, take) {
  let timer = 0;
  let asking = false;
  let lostSince = null;

  async function ask() {
    clearTimeout(timer);
    if (asking || document.visibilityState !== "visible") return;
    asking = true;
    const state = await answer();
    asking = false;
    timer = setTimeout(ask, INTERVAL_MS);
    if (state !== null) take(state);
  }

  async function answer() {
    try {
      const state = await getJson(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
      lostSince = null;
      if (byId("alarm").textContent === NO_RESPONSE) alarm("");
      return state;
    } catch (error) {
      lostSince ??= Date.now() / 1000;
      showLost(error instanceof RequestError ? error.message : text("connection.page_lost", { time: timeOfDay(lostSince) }), error.language);
      return null;
    }
  }

  document.addEventListener("visibilitychange", ask);
  timer = setTimeout(ask, INTERVAL_MS);
  return ask;
}

// connection: whether the node reaches the operator's server; null if no node runs here
export function showConnection(connection, expected) {
  document.body.classList.toggle("alone", connection === null);
  if (connection?.state === "lost") showLost(text("connection.server_lost", { time: timeOfDay(connection.since) }));
  else if (connection?.state === "ended" && expected) showLost(text("connection.node_ended"));
  else showLost("");
}

// What cannot be reached; "" for nothing. Sentences of class "by-itself" are not shown meanwhile.
function showLost(words, language = null) {
  document.body.classList.toggle("lost", words !== "");
  const element = byId("lost") ?? byId("alarm").insertAdjacentElement("afterend", make("div", { class: "alarm", id: "lost", role: "alert" }));
  if (language) element.lang = language;
  else element.removeAttribute("lang");
  const double = words !== "" && !byId("alarm").hidden && byId("alarm").textContent === NO_RESPONSE;
  element.hidden = words === "" || double;
  if (element.textContent !== words) element.textContent = words;
}
