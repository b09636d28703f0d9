// The key browser: keys by prefix, a key at each read level with its history, and writes.

import { call, keyPath, query, why } from "./api.js";
import { chip, field, h, panel, replace, setText } from "./dom.js";
import { count, valueText } from "./format.js";

const PAGE = 25;
const LEVELS = [
  ["green", "final, as far as this node knows"],
  ["red", "with what is not final yet"],
  ["linearizable", "the latest that is final anywhere"],
];

export function createKeys(model) {
  const key = createKey(model, (name) => list.read(null, name));
  const list = createList((name) => key.show(name));
  const root = h("div", { class: "columns" }, h("div", { class: "span-5 stack" }, list.root), h("div", { class: "span-7 stack" }, key.root));
  let isRead = false;
  return {
    root,
    update() {
      if (isRead) return;
      isRead = true;
      list.read();
    },
  };
}

function createList(onChosen) {
  const prefix = h("input", { class: "input mono", type: "text", placeholder: "all keys", autocomplete: "off", spellcheck: "false" });
  const level = h("select", { class: "input" }, h("option", { value: "red" }, "with red writes"), h("option", { value: "green" }, "green only"));
  const rows = h("ul", { class: "keys", "aria-label": "Keys" });
  const state = h("p", { class: "note", role: "status" });
  const cursors = [];
  let cursor = null;
  let next = null;
  const back = h("button", { class: "button small", type: "button", disabled: true, click: () => ((cursor = cursors.pop() ?? null), read(cursor)) }, "Previous page");
  const forward = h("button", { class: "button small", type: "button", disabled: true, click: () => (cursors.push(cursor), (cursor = next), read(cursor)) }, "Next page");
  const form = h("form", { class: "row", submit: (event) => (event.preventDefault(), restart()) }, field("Keys that begin with", prefix, { class: "grow" }), field("Show", level), h("button", { class: "button", type: "submit" }, "List"));
  const { root } = panel("Keys", null, form, rows, h("div", { class: "row pages" }, back, forward, state));
  level.addEventListener("change", restart);

  function restart() {
    cursors.length = 0;
    cursor = null;
    read();
  }

  async function read(from = cursor, chosen = null) {
    const answer = await call(`/v1/kv${query({ prefix: prefix.value, read: level.value, limit: PAGE, cursor: from })}`);
    if (!answer.ok) {
      setText(state, why(answer));
      return;
    }
    next = answer.body.cursor;
    back.disabled = !cursors.length;
    forward.disabled = !next;
    const { items } = answer.body;
    setText(state, items.length ? `at revision ${count(answer.body.revision)}` : "");
    replace(rows, items.length ? items.map((item) => row(item, item.key === chosen)) : h("li", { class: "empty" }, prefix.value ? "No key begins with this." : "There are no keys yet. Put one on the right."));
  }

  function row(item, isChosen) {
    const choose = (event) => {
      for (const other of rows.querySelectorAll("[aria-current]")) other.removeAttribute("aria-current");
      event.currentTarget.setAttribute("aria-current", "true");
      onChosen(item.key);
    };
    const color = item.color ?? "green";
    return h(
      "li",
      {},
      h("button", { class: "key-row", type: "button", "aria-current": isChosen ? "true" : null, click: choose }, h("code", { class: "key" }, item.key), h("span", { class: "key-value" }, valueText(item.value).slice(0, 120)), color === "green" ? h("span", { class: "muted mono" }, count(item.revision)) : chip(color)),
    );
  }
  return { root, read };
}

function createKey(model, onWritten) {
  const name = h("input", { class: "input mono", type: "text", required: true, autocomplete: "off", spellcheck: "false" });
  const value = h("textarea", { class: "input", spellcheck: "false" });
  const ack = h("select", { class: "input" }, [["auto", "auto: green in a primary, else red"], ["green", "green, or refused"], ["red", "red: on this node's disk"]].map(([option, text]) => h("option", { value: option }, text)));
  const result = h("p", { class: "note", role: "status" });
  const levels = h("div", { class: "levels" });
  const history = h("ol", { class: "history" });
  const ask = h("button", { class: "button danger", type: "button" }, "Delete…");
  const sure = h("button", { class: "button danger", type: "button", hidden: true, click: () => write("DELETE") }, "Really delete");
  ask.addEventListener("click", () => ((sure.hidden = !sure.hidden), !sure.hidden && sure.focus()));
  const form = h(
    "form",
    { class: "stack", submit: (event) => (event.preventDefault(), write("PUT")) },
    h("div", { class: "row" }, field("Key", name, { class: "grow" }), h("button", { class: "button", type: "button", click: () => name.value && show(name.value) }, "Read")),
    field("Value", value),
    h("div", { class: "row" }, field("Acknowledgement", ack, { class: "grow" }), h("button", { class: "button primary", type: "submit" }, "Put"), ask, sure),
    result,
  );
  const edit = panel("Read and write a key", null, form);
  const shown = panel("At each read level", null, levels);
  const past = panel("History", "newest first", history);
  shown.root.hidden = past.root.hidden = true;
  const root = h("div", { class: "stack" }, edit.root, shown.root, past.root);

  async function write(method) {
    sure.hidden = true;
    const key = name.value;
    if (!key) return;
    const path = `${keyPath(key)}${query({ ack: ack.value })}`;
    const headers = method === "PUT" ? { "Content-Type": "text/plain; charset=utf-8" } : {};
    const answer = await call(path, method, method === "PUT" ? value.value : undefined, headers);
    result.className = `note ${answer.ok ? "good" : "bad"}`;
    if (answer.ok) {
      const { color, revision, id } = answer.body;
      setText(result, color === "green" ? `Green at revision ${count(revision)}, write ${id}.` : `Accepted and ${color}, write ${id}: its order is open.`);
    } else {
      setText(result, why(answer));
    }
    onWritten(key);
    show(key, false);
  }

  async function show(key, isFilling = true) {
    name.value = key;
    shown.root.hidden = past.root.hidden = false;
    const [answers, found] = await Promise.all([Promise.all(LEVELS.map(([read]) => readKey(key, read))), call(`/v1/history${query({ key, limit: 20 })}`)]);
    if (name.value !== key) return; // somebody was faster
    if (isFilling) value.value = typeof answers[1].item?.value === "string" ? answers[1].item.value : "";
    replace(levels, LEVELS.map(([read, meaning], place) => level(read, meaning, answers[place])));
    replace(history, found.ok ? found.body.items.map(version) : h("li", { class: "note bad" }, why(found)));
    if (found.ok && !found.body.items.length) replace(history, h("li", { class: "note" }, "No final change of this key is kept."));
  }
  /** Reads a key as a list of one: a key that is not there is an empty list, and no error. */
  async function readKey(key, read) {
    if (read === "linearizable" && !model.own.status?.primary) {
      return { problem: "Only in a primary component, and this node is in none." };
    }
    const answer = await call(`/v1/kv${query({ start: key, end: `${key}\0`, limit: 1, read, timeout_ms: 2_000 })}`);
    return answer.ok ? { item: answer.body.items[0] ?? null } : { problem: why(answer) };
  }
  return { root, show };
}

function level(read, meaning, { item, problem }) {
  const color = item?.color ?? "green";
  const body = item
    ? [h("p", {}, chip(color)), h("pre", { class: "value" }, valueText(item.value) || "(empty)"), h("p", { class: "note" }, item.revision ? `revision ${count(item.revision)}` : "no revision yet"), h("p", { class: "note" }, item.content_type)]
    : [h("p", {}, chip("grey", problem ? "not now" : "not there")), problem && h("p", { class: "note" }, problem)];
  return h("div", { class: "level" }, h("h3", {}, read), h("p", { class: "note" }, meaning), body);
}

function version({ revision, write, value, deleted }) {
  return h("li", {}, h("span", { class: "mono muted number" }, count(revision)), h("span", { class: "history-value" }, deleted ? h("em", {}, "deleted") : valueText(value).slice(0, 300)), h("code", { class: "muted" }, write));
}
