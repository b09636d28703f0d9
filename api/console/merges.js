// What merges changed: red writes that met a change their node did not know, with both values; and what would change if the
// writes that are not green here merged now.

import { call, query, why } from "./api.js";
import { chip, h, panel, replace, setText } from "./dom.js";
import { count, nameOf, plural, shortView, valueText, clock } from "./format.js";

const KINDS = {
  overwrote: "overwrote it",
  rejected: "was rejected because of it",
  yielded: "yielded to it",
  otherwise: "did its else because of it",
};
const KEPT = 500;
const STEP = 8;

/** Conflicts as this page last read them. They are read again when a merge may have brought new ones. */
export class Conflicts {
  constructor(model) {
    this.model = model;
    this.items = [];
    this.problem = "";
    this.key = "";
    this.onChange = [];
  }

  /** Reads them if this node has entered another primary component since. */
  async refresh(isForced = false) {
    const { status } = this.model.own;
    const key = status ? `${status.last_committed_primary} ${status.state} ${status.incarnation}` : "";
    if (!status || (!isForced && key === this.key)) return;
    this.key = key;
    const oldest = Math.max(0, status.oldest_revision);
    let [items, cursor] = [[], null];
    do {
      const answer = await call(`/v1/conflicts${query({ limit: 1_000, from: oldest || null, cursor })}`);
      this.problem = answer.ok ? "" : why(answer);
      if (!answer.ok) break;
      items = [...items, ...answer.body.items].slice(-KEPT);
      cursor = answer.body.cursor;
    } while (cursor);
    this.items = items.reverse();
    for (const tell of this.onChange) tell();
  }
}

function conflictRow(conflict) {
  const { kind, key, write, node, value, revision, accepted_ms: accepted, other } = conflict;
  const side = (title, from, shown, color, note) =>
    h("div", { class: "side" }, h("p", { class: "side-title" }, chip(color, title), h("span", { class: "muted" }, from)), h("pre", { class: "value" }, shown), h("p", { class: "note" }, note));
  return h(
    "li",
    { class: "conflict" },
    h("p", { class: "conflict-title" }, h("code", { class: "key" }, key), h("span", {}, ` A red write of ${node} met a change of ${other.node}, and ${KINDS[kind] ?? kind}.`)),
    h(
      "div",
      { class: "sides" },
      side("green first", other.write, valueText(other.value), "green", `revision ${count(other.revision)}`),
      side("then the merge", write, valueText(value), "red", `accepted at ${clock(accepted)}${revision ? `, revision ${count(revision)}` : ", changed nothing"}`),
    ),
  );
}

/** The short form for the overview. */
export function createRecentMerges(model, conflicts) {
  const items = h("ol", { class: "conflicts short" });
  const { root, head } = panel("Recent merges and conflicts", null, items);
  head.append(h("a", { class: "end", href: "#/merges" }, "All of them"));
  const draw = () => {
    const merges = mergesOf(model).slice(0, 3);
    const rows = [
      ...merges.map((one) => h("li", { class: "merge" }, h("time", { class: "mono muted" }, clock(one.time)), h("span", {}, one.text))),
      ...conflicts.items.slice(0, 2).map(conflictRow),
    ];
    replace(items, rows.length ? rows : h("li", { class: "empty" }, "No merge has happened here since this node started."));
  };
  conflicts.onChange.push(draw);
  let known = -1;
  return {
    root,
    update() {
      conflicts.refresh();
      if (known === model.own.milestones.length) return;
      known = model.own.milestones.length;
      draw();
    },
  };
}

/** Views of this node that brought members together, with what became of them. */
function mergesOf(model) {
  const found = [];
  let before = null;
  for (const one of model.own.milestones) {
    if (one.event === "view") {
      const members = one.details.members.map(nameOf);
      const joined = before ? members.filter((name) => !before.includes(name)) : [];
      before = members;
      if (joined.length) found.push({ time: one.time_ms, view: one.view, text: `${joined.join(", ")} joined: view ${shortView(one.view)} of ${members.join(", ")}` });
    } else if (found.length && one.view === found[found.length - 1].view) {
      const last = found[found.length - 1];
      if (one.event === "retransmitting") last.text += `; ${model.me} sent ${plural(one.details.count, "message")}`;
      if (one.event === "stage" && one.details.stage === "primary") last.text += `; primary ${one.details.committed}, ${plural(one.details.green, "message")} green`;
    }
  }
  return found.reverse();
}

export function createMerges(model, conflicts) {
  const state = h("p", { class: "note", role: "status" });
  const items = createLongList(conflictRow);
  const merges = h("ol", { class: "conflicts short" });
  const preview = createLongList(previewRow);
  const previewState = h("p", { class: "note", role: "status" });
  const reload = h("button", { class: "button small end", type: "button", click: () => Promise.all([conflicts.refresh(true), readPreview()]) }, "Read again");
  const found = panel("Conflicts", "red writes that met a change which their node did not know", state, items.root);
  found.head.append(reload);
  const ahead = panel("If it merged now", "what the writes that are not green here would do", previewState, preview.root);
  const past = panel("Merges", "as this node saw them", merges);
  const root = h("div", { class: "columns" }, h("div", { class: "span-7 stack" }, found.root), h("div", { class: "span-5 stack" }, past.root, ahead.root));

  function draw() {
    setText(state, conflicts.problem || (conflicts.items.length ? `${plural(conflicts.items.length, "conflict")}, newest first` : "None is kept: no red write has met a change that its node did not know."));
    items.show(conflicts.items);
    const rows = mergesOf(model).slice(0, 20).map((one) => h("li", { class: "merge" }, h("time", { class: "mono muted" }, clock(one.time)), h("span", {}, one.text)));
    replace(merges, rows.length ? rows : h("li", { class: "empty" }, "None since this node started."));
  }

  async function readPreview() {
    const answer = await call(`/v1/conflicts/preview${query({ limit: 200 })}`);
    if (!answer.ok) {
      setText(previewState, why(answer));
      return;
    }
    const writes = answer.body.items;
    setText(previewState, writes.length ? `${plural(writes.length, "write")}${answer.body.cursor ? ", and more" : ""}, on top of revision ${count(answer.body.revision)}` : "Nothing here waits for a merge.");
    preview.show(writes);
  }

  conflicts.onChange.push(draw);
  let key = "";
  return {
    root,
    update() {
      conflicts.refresh();
      const { status } = model.own;
      const now = `${status?.red} ${status?.state} ${model.own.milestones.length}`;
      if (now === key) return;
      key = now;
      draw();
      readPreview();
    },
  };
}

/** A list that shows a few of its items, and more when asked. */
function createLongList(row) {
  const list = h("ol", { class: "conflicts" });
  const more = h("button", { class: "button small more", type: "button", hidden: true, click: () => ((limit += STEP), draw()) });
  let [items, limit] = [[], STEP];
  const draw = () => {
    replace(list, items.slice(0, limit).map(row));
    more.hidden = items.length <= limit;
    setText(more, `Show more (${count(items.length - limit)})`);
  };
  return { root: h("div", {}, list, more), show: (all) => ((items = all), draw()) };
}

function previewRow({ write, color, outcome, changes }) {
  return h(
    "li",
    { class: "conflict" },
    h("p", { class: "conflict-title" }, chip(color), h("code", {}, write), h("span", {}, ` would be ${outcome}`)),
    changes.slice(0, 5).map(({ key, before, after }) => h("p", { class: "change" }, h("code", { class: "key" }, key), h("span", { class: "muted" }, ` ${valueText(before)} → `), h("span", {}, valueText(after)))),
  );
}
