// One request to several nodes at once, and a sentence about where it failed.

import { why } from "./api.js";
import { setText } from "./dom.js";

/** `requests` are pairs of a node's name and a function from its URL to the answer. `said` is told what was `done`, and where not. */
export async function askNodes(model, requests, done, said) {
  const answers = await Promise.all(requests.map(async ([name, ask]) => [name, model.urlOf(name) === null ? null : await ask(model.urlOf(name))]));
  const failed = answers.filter(([, answer]) => !answer?.ok);
  said.className = `note ${failed.length ? "bad" : "good"}`;
  const reasons = failed.map(([name, answer]) => `${name}: ${answer ? why(answer) : "its URL is not known."}`);
  setText(said, failed.length ? `${done}, but not at every node. ${reasons.join(" ")}` : `${done}.`);
}
