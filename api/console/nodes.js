// A card for each node: its state, view and incarnation, and its message queue as a bar with the green and yellow lines.
// All bars have one scale, so that one sees who is behind.

import { h, panel, setAttribute, setText } from "./dom.js";
import { STATES, clock, count, disturbances, duration, learningText, plural, shortView } from "./format.js";

export function createNodes(model) {
  const scale = h("p", { class: "muted" });
  const grid = h("div", { class: "nodes" });
  const { root, head } = panel("Nodes and their message queues", null, grid);
  head.append(scale, legend());
  const cards = new Map();

  function update() {
    for (const [place, name] of model.names.entries()) {
      if (!cards.has(name)) {
        cards.set(name, createCard(name, place));
        grid.append(cards.get(name).root);
      }
    }
    const window_ = windowOf(model);
    setText(scale, window_.end ? `messages ${count(window_.base)} to ${count(window_.end)} of the queue` : "");
    for (const [name, card] of cards) card.update(model, window_);
  }
  return { root, update };
}

function legend() {
  const entry = (color, text) => h("li", {}, h("span", { class: "swatch", "data-color": color, "aria-hidden": "true" }), text);
  return h("ul", { class: "legend end", "aria-label": "Colours of messages" }, entry("green", "green: final"), entry("yellow", "yellow: about to be"), entry("red", "red: order open"));
}

/** The part of the queue that the bars show: it moves in steps, so that one sees the lines move between them. */
function windowOf(model) {
  const statuses = model.names.map((name) => model.get(name)?.status).filter(Boolean);
  if (!statuses.length) return { base: 0, end: 0 };
  const length = Math.max(...statuses.map(lengthOf));
  const green = Math.min(...statuses.map((status) => status.green.line));
  const size = niceSize(Math.max(40, 2.4 * (length - green)));
  const half = size / 2;
  const base = Math.max(0, Math.floor(length / half) * half - half);
  return { base, end: base + size };
}

function niceSize(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 4, 10].map((factor) => factor * power).find((size) => size >= least);
}

const lengthOf = (status) => Math.max(status.yellow.line, status.green.line) + status.red;

function createCard(name, place) {
  const parts = {
    state: h("span", { class: "chip" }),
    primary: h("span", { class: "node-primary" }),
    me: h("span", { class: "tag", hidden: true }, "this node"),
    vote: h("span", { class: "tag", hidden: true, title: "It recovers from an empty disk, and counts towards no majority until then." }, "no vote"),
    learning: h("span", { class: "tag learning", hidden: true }),
    cut: h("span", { class: "tag warn", hidden: true, title: "What is wrong with its network on purpose" }),
    view: h("dd", { class: "mono" }),
    members: h("dd"),
    incarnation: h("dd", { class: "mono" }),
    up: h("dd"),
    source: h("p", { class: "node-source" }),
  };
  const bar = createBar();
  const root = h(
    "article",
    { class: "node", "data-node": name, "aria-label": `Node ${name}` },
    h(
      "div",
      { class: "node-who" },
      h("h3", { class: "node-name" }, h("span", { class: "dot", "data-place": place % 6, "aria-hidden": "true" }), name, parts.me, parts.vote, parts.learning, parts.cut),
      h("div", { class: "node-state" }, parts.state, parts.primary),
      parts.source,
    ),
    bar.root,
    h(
      "dl",
      { class: "facts" },
      h("div", {}, h("dt", {}, "View"), parts.view),
      h("div", {}, h("dt", {}, "Members"), parts.members),
      h("div", {}, h("dt", {}, "Incarnation"), parts.incarnation),
      h("div", {}, h("dt", {}, "Up"), parts.up),
    ),
  );

  function update(model, window_) {
    const node = model.get(name);
    const { state, source, view } = model.stateOf(name);
    const status = node?.status ?? null;
    const { label, color, meaning } = STATES[state];
    setText(parts.state, label);
    setAttribute(parts.state, "data-color", color);
    parts.state.title = meaning;
    setAttribute(root, "data-state", state);
    setAttribute(root, "data-source", source);
    parts.me.hidden = name !== model.me;
    parts.vote.hidden = !(source === "first-hand" && !status.voter);
    const learning = source === "first-hand" ? learningText(status.learning) : "";
    parts.learning.hidden = !learning;
    setText(parts.learning, learning);
    parts.learning.title = learning && `It lacks too much to join the others, and takes over the state of ${status.learning.source || "another node"}: ${count(status.learning.line)} of ${count(status.learning.target)} messages.`;
    const { chaos } = status?.lab ?? {};
    parts.cut.hidden = !(source === "first-hand" && status.chaos);
    setText(parts.cut, chaos ? disturbances(chaos).join(", ") : "");
    setText(parts.primary, primaryText(source, status));
    setText(parts.view, view ? shortView(view.id) : "not known");
    parts.view.title = view ? view.id : "";
    setText(parts.members, view ? view.members.join(", ") : "not known");
    setText(parts.incarnation, status?.incarnation ?? model.hearsay(name)?.incarnation ?? "not known");
    setText(parts.up, source === "first-hand" ? duration(Date.now() - status.started_ms) : "not known");
    setText(parts.source, sourceText(model, name, source, node));
    bar.update(status, window_, source === "first-hand");
  }
  return { root, update };
}

function primaryText(source, status) {
  if (source !== "first-hand") return "";
  const { last_committed_primary: committed, last_attempted_primary: attempted } = status;
  if (status.state === "establishing" || status.state === "recovering") return status.phase;
  const attempt = attempted > committed ? `, attempted ${attempted}` : "";
  return status.primary ? `component ${committed}` : committed ? `last was ${committed}${attempt}` : "never in one";
}

function sourceText(model, name, source, node) {
  if (source === "first-hand") return node.ageMs < 1_500 ? "first-hand, live" : `first-hand, ${duration(node.ageMs)} old`;
  const hearsay = model.hearsay(name);
  const witness = model.witness.name;
  if (source === "second-hand") {
    return `second-hand: in ${witness}'s view${hearsay?.url ? "; this browser does not reach it" : "; its URL is not known"}`;
  }
  const last = hearsay?.last_heard_ms;
  const heard = last ? `${witness} last heard it at ${clock(last)}, ${duration(Math.floor((Date.now() - last) / 1_000) * 1_000)} ago` : `${witness} has not heard it`;
  return node?.heardAt ? `does not answer since ${clock(node.lostAt || node.heardAt)}; ${heard}` : heard;
}

function createBar() {
  const segments = Object.fromEntries(["green", "yellow", "red"].map((color) => [color, h("span", { class: "segment", "data-color": color })]));
  const lines = { green: h("span", { class: "mark", "data-color": "green" }), yellow: h("span", { class: "mark", "data-color": "yellow" }) };
  const track = h("div", { class: "track", role: "img" }, Object.values(segments), Object.values(lines));
  const numbers = {
    green: h("strong"),
    yellow: h("strong"),
    red: h("strong"),
    revision: h("strong"),
  };
  const caption = h(
    "dl",
    { class: "lines" },
    h("div", { "data-color": "green" }, h("dt", {}, "green line"), h("dd", {}, numbers.green)),
    h("div", { "data-color": "yellow" }, h("dt", {}, "yellow line"), h("dd", {}, numbers.yellow)),
    h("div", { "data-color": "red" }, h("dt", {}, "red"), h("dd", {}, numbers.red)),
    h("div", {}, h("dt", {}, "revision"), h("dd", {}, numbers.revision)),
  );
  const root = h("div", { class: "queue" }, track, caption);

  function update(status, { base, end }, isCurrent) {
    setAttribute(root, "data-current", isCurrent ? "yes" : "no");
    if (!status) {
      setAttribute(track, "aria-label", "Message queue: not known");
      for (const number of Object.values(numbers)) setText(number, "–");
      return;
    }
    const green = status.green.line;
    const yellow = Math.max(status.yellow.line, green);
    const length = yellow + status.red;
    const part = (from, to) => `${(100 * Math.max(0, Math.min(to, end) - Math.max(from, base))) / (end - base || 1)}%`;
    segments.green.style.width = part(base, green);
    segments.yellow.style.width = part(green, yellow);
    segments.red.style.width = part(yellow, length);
    lines.green.style.left = part(base, green);
    lines.yellow.style.left = part(base, yellow);
    setText(numbers.green, count(green));
    setText(numbers.yellow, count(yellow));
    setText(numbers.red, count(status.red));
    setText(numbers.revision, count(status.green.revision));
    setAttribute(track, "aria-label", `Message queue of ${plural(length, "message")}: ${count(green)} green, ${count(yellow - green)} yellow, ${count(status.red)} red`);
  }
  return { root, update };
}
