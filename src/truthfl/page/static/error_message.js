// The words of a failed request, for the alarm or another place.

import { NO_RESPONSE, RequestError } from "./api.js";
import { alarm } from "./dom.js";
import { parts } from "./text.js";

export function showError(error) {
  alarm(errorWords(error));
}

// Texts and elements.
export function errorWords(error) {
  if (error.form) return parts(error.form);
  return [error instanceof RequestError ? error.message : NO_RESPONSE];
}
