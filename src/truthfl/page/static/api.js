// Requests to the page's server, which return JSON or throw a RequestError with a message; and the words of errors.

import { alarm } from "./dom.js";
import { message, parts, text } from "./text.js";

const RETRY_MS = 1000;
const INTERVAL_MS = 1000;
const TIMEOUT_MS = 1500; // with the interval, a dead server is noticed within three seconds

let csrf = "";

// language: of the message, if it is not the page's; form: of which `parts` makes texts and elements
// conflict: of samples whose label is another than the page showed, the present states
export class RequestError extends Error {
  constructor(status, words, language = null) {
    super(words);
    this.status = status;
    this.language = language;
  }
}

export const NO_RESPONSE = text("common.no_response");

// Ask for a state every second while the page is seen, and at once when it is seen again. Returns a function that asks now.
// pathOf(): of the state; take(state): called with each; onLost(error): called when none comes
export function watchServer(pathOf, take, onLost) {
  let timer = setTimeout(ask, INTERVAL_MS);
  let asking = false;

  async function ask() {
    clearTimeout(timer);
    if (asking || document.visibilityState !== "visible") return;
    asking = true;
    const state = await getJson(pathOf(), { signal: AbortSignal.timeout(TIMEOUT_MS) }).catch((error) => {
      onLost(error);
      return null;
    });
    asking = false;
    timer = setTimeout(ask, INTERVAL_MS);
    if (state !== null) take(state);
  }

  document.addEventListener("visibilitychange", ask);
  return ask;
}

// options: of fetch, such as a signal that ends it
export async function getJson(path, options = {}) {
  const answer = await read(await fetch(path, options));
  if (answer.csrf) csrf = answer.csrf;
  return answer;
}

export async function postJson(path, body) {
  return read(await fetch(path, {
    method: "POST",
    headers: { "content-type": "application/json", "x-truthfl": csrf },
    body: JSON.stringify(body),
  }));
}

// Sends the same body again until the server responds; it has a nonce, so the server stores it once.
// showMessage: shows an error message, or hides it if it is ""
export async function postUntilAnswered(path, body, showMessage) {
  for (;;) {
    try {
      const answer = await postJson(path, body);
      showMessage("");
      return answer;
    } catch (error) {
      if (error instanceof RequestError) throw error;
      showMessage(NO_RESPONSE);
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

export function nonce() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The error of a response that is not ok: a message of the page's strings, or a sentence in English.
export async function errorOf(response) {
  if (response.status === 403) return new RequestError(403, text("common.session_closed"));
  const { error, message: known, conflict } = await response.json().catch(() => ({}));
  if (known) return Object.assign(new RequestError(response.status, message(known)), { conflict, form: known });
  if (error) return Object.assign(new RequestError(response.status, error, "en"), { form: { english: error } });
  return new RequestError(response.status, text("common.internal_error"));
}

async function read(response) {
  if (response.ok) return response.json();
  throw await errorOf(response);
}

// Show the words of a failed request.
export function showError(error) {
  alarm(errorWords(error));
}

// Texts and elements.
export function errorWords(error) {
  if (error.form) return parts(error.form);
  return [error instanceof RequestError ? error.message : NO_RESPONSE];
}
