// Requests to the server that this page came from.

const KEY = "weft-key";

export class Refusal extends Error {
  constructor(status, detail, retry) {
    super(detail);
    this.status = status;
    this.retry = retry;
  }
}

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

async function call(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["content-type"] = "application/json";
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "The server cannot be reached. Is it still running?");
  }
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    throw new Refusal(response.status, answer.detail || `The server answered ${response.status}.`, response.headers.get("retry-after"));
  }
  return answer;
}

const at = (index, rest = "") => `/v1/indexes/${encodeURIComponent(index)}${rest}`;

export const api = {
  indexes: () => call("GET", "/v1/indexes"),
  search: (index, body, signal) => call("POST", at(index, "/search"), body, signal),
  explain: (index, body) => call("POST", at(index, "/explain"), body),
  fields: (index, filter, signal) => call("POST", at(index, "/fields"), filter ? { filter } : {}, signal),
  document: (index, id) => call("GET", at(index, `/documents/${encodeURIComponent(id)}`)),
  add: (index, documents) => call("POST", at(index, "/documents"), { documents }),
};
