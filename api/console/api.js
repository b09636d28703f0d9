// Calls of the API. Every answer is {ok, status, body, headers}; a call that gets none says so in the same shape.

export async function call(url, method = "GET", body = undefined, headers = {}, signal = undefined) {
  try {
    const response = await fetch(url, { method, body, headers, signal, cache: "no-store" });
    const text = await response.text();
    return { ok: response.ok, status: response.status, text, body: parse(text), headers: response.headers };
  } catch (error) {
    const message = error.name === "AbortError" ? "The request was cancelled." : "The node does not answer.";
    return { ok: false, status: 0, text: "", body: { error: "unreachable", message }, headers: new Headers() };
  }
}

export const patch = (url, body) => call(url, "PATCH", JSON.stringify(body), { "Content-Type": "application/json" });

export const post = (url, body) => call(url, "POST", JSON.stringify(body), { "Content-Type": "application/json" });

/** Why a call failed, in the node's own sentence. */
export const why = (answer) => answer.body?.message ?? `The node answered ${answer.status}.`;

export function keyPath(key) {
  return `/v1/kv/${encodeURIComponent(key)}`;
}

export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
