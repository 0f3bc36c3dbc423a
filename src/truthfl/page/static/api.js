// Requests to the page's server. Each function returns JSON, or throws a RequestError with a message.

const RETRY_MS = 1000;

let csrf = "";

export class RequestError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const SESSION_CLOSED = "This page was closed. Open the link that truthfl printed where it was started; what you decided is kept.";
export const NO_RESPONSE = "The page’s server does not answer. What you decided before is kept; this last decision is sent again until it " +
  "does. If truthfl was stopped, start it again and go on, with this one, in the page that it opens.";

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

export async function errorMessage(response) {
  const { error } = await response.json().catch(() => ({}));
  return error ?? "Something went wrong on this machine; where truthfl was started, it says what. All decisions are kept.";
}

async function read(response) {
  if (response.ok) return response.json();
  if (response.status === 403) throw new RequestError(403, SESSION_CLOSED);
  throw new RequestError(response.status, await errorMessage(response));
}
