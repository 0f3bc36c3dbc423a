// The alarm of a failed request. Messages that the server has in English alone are marked as such.

import { NO_RESPONSE, RequestError } from "./api.js";
import { alarm } from "./dom.js";

export function showError(error) {
  if (error instanceof RequestError) alarm(error.message, error.language);
  else alarm(NO_RESPONSE);
}
