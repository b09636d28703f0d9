// What happened: the stages of every node over the last two minutes, how each view of this node was established, and the
// milestones of all nodes as they come.

import { h, panel, replace, setAttribute, setText } from "./dom.js";
import { STATES, clock, milliseconds } from "./format.js";
import { establishmentsOf, stagesOf, together } from "./milestones.js";

const SPAN_MS = 120_000;
const EVENTS_SHOWN = 40;
const VIEWS_SHOWN = 6;

export function createTimeline(model, below) {
  const lanes = createLanes(model);
  const views = h("ol", { class: "views" });
  const events = h("ol", { class: "events", tabindex: 0, "aria-label": "Milestones of all nodes, newest first" });
  const stages = panel("Stages", "of each node, over the last two minutes", lanes.root);
  const establishments = panel("Establishments", null, views);
  const note = h("span", { class: "muted" });
  establishments.head.append(note);
  const log = panel("What happened", "newest first", events);
  const root = h("div", { class: "columns even" }, h("div", { class: "span-7 stack" }, stages.root, establishments.root, below), h("div", { class: "span-5 stack fills" }, log.root));
  let shown = "";

  function update() {
    lanes.update();
    const all = model.names.flatMap((name) => (model.get(name)?.milestones ?? []).map((one) => ({ ...one, name })));
    const key = `${all.length} ${Math.max(0, ...all.map((one) => one.time_ms))}`;
    if (key === shown) return;
    shown = key;
    setText(note, model.me ? `how node ${model.me} came to each view` : "");
    replace(views, establishmentsOf(model.own.milestones).slice(0, VIEWS_SHOWN).map(viewRow));
    const place = (name) => model.names.indexOf(name) % 6;
    replace(events, together(all).slice(0, EVENTS_SHOWN).map((one) => eventRow(one, place)));
  }
  return { root, update };
}

function eventRow(milestone, place) {
  const stage = milestone.event === "stage" ? milestone.details.stage : null;
  return h(
    "li",
    { "data-stage": stage },
    h("time", { class: "mono", title: new Date(milestone.time_ms).toISOString() }, clock(milestone.time_ms, true)),
    h("span", { class: "event-nodes" }, milestone.names.sort().map((name) => h("span", { class: "event-node", "data-place": place(name) }, name))),
    h("span", {}, milestone.text),
  );
}

function viewRow(found) {
  const { label, color } = STATES[found.outcome?.stage ?? "recovering"];
  const outcome = found.outcome?.number ? `${label} ${found.outcome.number}` : label;
  const wide = Math.max(found.total, 0.001);
  return h(
    "li",
    {},
    h("time", { class: "mono muted" }, clock(found.start)),
    h("span", { class: "view-members" }, found.members.length ? found.members.join(", ") : "alone"),
    h("span", { class: "chip", "data-color": color }, outcome),
    h(
      "div",
      { class: "phases", role: "img", "aria-label": found.phases.map(({ name, ms }) => `${name} ${milliseconds(ms)}`).join(", ") || "no phases" },
      found.phases.map(({ name, ms }) => {
        const part = h("span", { class: "phase", "data-phase": name, title: `${name}: ${milliseconds(ms)}` }, h("span", {}, `${name} ${milliseconds(ms)}`));
        part.style.flexGrow = String(Math.max(ms / wide, 0.02));
        return part;
      }),
    ),
    h("span", { class: "view-total nowrap" }, found.phases.length ? milliseconds(found.total) : ""),
  );
}

function createLanes(model) {
  const rows = new Map();
  const body = h("div", { class: "lanes" });
  const axis = h("div", { class: "lane-axis", "aria-hidden": "true" }, h("span", {}, "−2 min"), h("span", {}, "−1 min"), h("span", {}, "now"));
  const root = h("div", {}, body, axis);

  function update() {
    const now = Date.now();
    for (const name of model.names) {
      if (!rows.has(name)) {
        const track = h("div", { class: "lane-track", role: "img" });
        rows.set(name, track);
        body.append(h("div", { class: "lane" }, h("span", { class: "lane-name" }, name), track));
      }
      draw(rows.get(name), model.get(name), name, now);
    }
  }

  function draw(track, node, name, now) {
    const pieces = piecesOf(node, now);
    while (track.children.length > pieces.length) track.lastChild.remove();
    while (track.children.length < pieces.length) track.append(h("span", { class: "piece" }, h("span")));
    pieces.forEach(({ stage, from, to }, place) => {
      const piece = track.children[place];
      const left = Math.max(0, (from - now + SPAN_MS) / SPAN_MS);
      const width = (to - now + SPAN_MS) / SPAN_MS - left;
      piece.style.left = `${100 * left}%`;
      piece.style.width = `${100 * width}%`;
      const { label, color } = stage === "lost" ? { label: "No answer", color: "grey" } : STATES[stage];
      setAttribute(piece, "data-color", color);
      setAttribute(piece, "data-stage", stage);
      piece.title = `${label}, ${clock(from)} to ${clock(to)}`;
      setText(piece.firstChild, width > 0.13 ? label : "");
    });
    const last = pieces[pieces.length - 1];
    setAttribute(track, "aria-label", `Stages of ${name}: now ${last ? (STATES[last.stage]?.label ?? "no answer").toLowerCase() : "not known"}`);
  }
  return { root, update };
}

/** The stages of a node, with those times on top in which it did not answer. */
function piecesOf(node, now) {
  if (!node) return [];
  const outages = [...node.outages, ...(node.lostAt ? [[node.lostAt, now]] : [])].map(([from, to]) => ({ stage: "lost", from, to }));
  return [...stagesOf(node.milestones, now), ...outages].filter(({ to }) => to > now - SPAN_MS);
}
