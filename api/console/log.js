// The log inspector: pages of the message queue, an entry in full, and the fate of a write.

import { call, query, why } from "./api.js";
import { chip, field, h, panel, replace, setText } from "./dom.js";
import { bytes, count, shortView } from "./format.js";

const PAGE = 25;

export function createLog(model) {
  const rows = h("tbody");
  const state = h("p", { class: "note", role: "status" });
  const position = h("input", { class: "input", type: "number", min: 0, step: 1, inputmode: "numeric" });
  const follow = h("input", { type: "checkbox", checked: true });
  const button = (text, click) => h("button", { class: "button", type: "button", click }, text);
  const older = button("Older", () => go(first - PAGE));
  const newer = button("Newer", () => go(first + PAGE));
  const form = h(
    "form",
    { class: "row", submit: (event) => (event.preventDefault(), go(Number(position.value) || 0)) },
    field("From position", position, { class: "narrow" }),
    h("button", { class: "button", type: "submit" }, "Show"),
    older,
    newer,
    h("label", { class: "check" }, follow, "Follow the end"),
  );
  const table = h(
    "table",
    { class: "table log-table" },
    h("caption", { class: "visually-hidden" }, "Messages of the log"),
    h("thead", {}, h("tr", {}, ["Position", "Colour", "Message", "Operations", "Size"].map((title) => h("th", { scope: "col" }, title)))),
    rows,
  );
  const writes = createWrites();
  const { root } = panel("Message queue", "in its order, whatever the colour", form, h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Messages of the log" }, table), state);
  const section = h("div", { class: "columns" }, h("div", { class: "span-8 stack" }, root), h("div", { class: "span-4 stack" }, writes.root));
  let first = 0;
  let kept = 0; // the first position that the node still has, as far as it has said so
  let open = null;
  let key = "";
  let isReading = false;

  function go(to) {
    follow.checked = false;
    read(Math.max(kept, to));
  }

  async function read(from) {
    if (isReading) return;
    isReading = true;
    const answer = await call(`/v1/log${query({ from: String(from), limit: PAGE })}`);
    isReading = false;
    if (answer.status === 410 && Number.isInteger(answer.body.first)) {
      kept = answer.body.first;
      read(Math.max(kept, from));
      return;
    }
    if (!answer.ok) {
      setText(state, why(answer));
      return;
    }
    first = from;
    if (document.activeElement !== position) position.value = String(from);
    const { entries } = answer.body;
    setText(state, entries.length ? `positions ${count(entries[0].position)} to ${count(entries[entries.length - 1].position)} of ${count(length())}` : `There is nothing from position ${count(from)} on.`);
    older.disabled = from <= kept;
    newer.disabled = entries.length < PAGE;
    replace(rows, entries.flatMap((entry) => entryRows(entry, entry.id === open)));
  }

  function entryRows(entry, isOpen) {
    const toggle = h(
      "button",
      {
        class: "plain mono",
        type: "button",
        "aria-expanded": String(isOpen),
        click: () => {
          open = isOpen ? null : entry.id;
          const [row, ...details] = entryRows(entry, !isOpen);
          const old = toggle.closest("tr");
          if (isOpen) old.nextElementSibling.remove();
          old.replaceWith(row, ...details);
          row.querySelector("button").focus();
        },
      },
      entry.id,
    );
    const row = h("tr", { "data-color": entry.color }, h("td", { class: "number" }, count(entry.position)), h("td", {}, chip(entry.color)), h("td", {}, toggle), h("td", { class: "operations" }, summary(entry.operations)), h("td", { class: "number nowrap" }, bytes(entry.bytes)));
    return isOpen ? [row, h("tr", { class: "detail" }, h("td", { colspan: 5 }, detail(entry, writes)))] : [row];
  }

  const length = () => {
    const { status } = model.own;
    return status ? Math.max(status.yellow.line, status.green.line) + status.red : 0;
  };

  function update() {
    const { status } = model.own;
    const now = status ? `${length()} ${status.green.line} ${status.yellow.line} ${status.view.id}` : "";
    if (!status || now === key || open !== null) return;
    key = now;
    read(follow.checked ? Math.max(0, length() - PAGE) : first);
  }
  follow.addEventListener("change", () => follow.checked && read(Math.max(0, length() - PAGE)));
  return { root: section, update };
}

function kindOf(operation) {
  const [[what, details]] = Object.entries(operation).filter(([name]) => name !== "write");
  return { what, details };
}

function summary(operations) {
  const shown = operations.slice(0, 3).map((operation) => {
    const { what, details } = kindOf(operation);
    return h("span", { class: "operation" }, `${what} `, h("code", { class: "key" }, details?.key ?? String(details)));
  });
  const more = operations.length - shown.length;
  return [shown, more > 0 && h("span", { class: "muted" }, `and ${count(more)} more`)];
}

function detail(entry, writes) {
  const fact = (name, value) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value));
  return h(
    "div",
    { class: "entry" },
    h("dl", { class: "facts wide" }, fact("Sender", entry.sender), fact("Timestamp", count(entry.timestamp)), fact("View", shortView(entry.view)), fact("Acknowledged by", entry.color === "green" ? "all" : entry.acknowledged.join(", ") || "nobody")),
    h(
      "ul",
      { class: "entry-operations" },
      entry.operations.slice(0, 200).map((operation) => {
        const { what, details } = kindOf(operation);
        return h(
          "li",
          {},
          operation.write && h("button", { class: "plain mono", type: "button", click: () => writes.show(operation.write), "aria-label": `Follow write ${operation.write}` }, operation.write),
          h("span", {}, `${what} `, h("code", { class: "key" }, details?.key ?? String(details))),
          h("span", { class: "muted" }, details?.bytes === undefined ? "" : bytes(details.bytes)),
        );
      }),
    ),
  );
}

/** Follows a write by its id until it is green. */
function createWrites() {
  const id = h("input", { class: "input mono", type: "text", placeholder: "a.1794953000.17.0", autocomplete: "off", spellcheck: "false" });
  const out = h("div", { class: "fate", role: "status" });
  let asking = null;
  const form = h("form", { class: "row", submit: (event) => (event.preventDefault(), show(id.value.trim())) }, field("Write id", id, { class: "grow" }), h("button", { class: "button primary", type: "submit" }, "Follow"));
  const { root } = panel("Follow a write", "what became of it, on this node", form, out);

  async function show(write) {
    if (!write) return;
    asking?.abort();
    asking = new AbortController();
    const { signal } = asking;
    id.value = write;
    let answer = await call(`/v1/writes/${encodeURIComponent(write)}`, "GET", undefined, {}, signal);
    draw(answer);
    while (answer.ok && answer.body.color !== "green" && !signal.aborted) {
      answer = await call(`/v1/writes/${encodeURIComponent(write)}?wait=green&timeout_ms=10000`, "GET", undefined, {}, signal);
      if (!signal.aborted) draw(answer);
    }
  }

  function draw(answer) {
    if (!answer.ok) {
      replace(out, h("p", { class: "note bad" }, why(answer)));
      return;
    }
    const { color, outcome, revision, reason, key, duplicate_of: duplicate, beaten_by: beaten } = answer.body;
    const rows = { Outcome: outcome, Revision: revision ? count(revision) : null, Reason: reason?.replaceAll("_", " "), Key: key, "Duplicate of": duplicate, "Beaten by": beaten };
    replace(
      out,
      h("p", {}, chip(color), color === "green" ? " Its place in the order is final." : " It is on disk, and its order is open. This page waits until it is green."),
      h("dl", { class: "facts" }, Object.entries(rows).filter(([, value]) => value).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", { class: "mono" }, value)))),
    );
  }
  return { root, show };
}
