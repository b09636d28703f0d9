// The editor of a cut: which node is on which island. Nodes are dragged there, or sent there with the buttons of their row.

import { h, replace, setAttribute } from "./dom.js";

const ISLANDS_MAX = 5;

export function createIslands(model) {
  const sea = h("div", { class: "sea" });
  const rows = h("div", { class: "movers" });
  const root = h("div", { class: "stack" }, sea, rows);
  const place = new Map(); // by name, the number of its island from 0
  let isTouched = false;
  let drawn = "";

  const islandCount = () => Math.min(ISLANDS_MAX, Math.max(2, model.names.length));

  function move(name, island) {
    isTouched = true;
    place.set(name, island);
    draw();
  }

  /** The islands that have nodes, as lists of names. */
  function islands() {
    const found = Array.from({ length: islandCount() }, () => []);
    for (const name of model.names) found[place.get(name) ?? 0].push(name);
    return found.filter((members) => members.length);
  }

  function update() {
    if (!isTouched) adoptPresent();
    draw();
  }

  /** Begins with the cut that is there: nodes that drop the same others are on one island. */
  function adoptPresent() {
    const sides = new Map();
    for (const name of model.names) {
      const chaos = model.get(name)?.status?.lab.chaos;
      const side = chaos ? chaos.drop_from.join() : "";
      if (!sides.has(side)) sides.set(side, Math.min(sides.size, islandCount() - 1));
      place.set(name, sides.get(side));
    }
  }

  function draw() {
    const key = JSON.stringify([model.names, [...place], model.names.map((name) => model.stateOf(name).state)]);
    if (key === drawn) return;
    drawn = key;
    const focused = document.activeElement?.name?.startsWith("island-") ? document.activeElement : null;
    const boxes = Array.from({ length: islandCount() }, (_, number) => {
      const members = model.names.filter((name) => (place.get(name) ?? 0) === number);
      return h(
        "div",
        { class: "isle", "data-island": number, "data-empty": members.length === 0, role: "group", "aria-label": `Island ${number + 1}: ${members.join(", ") || "empty"}` },
        h("span", { class: "isle-name" }, `Island ${number + 1}`),
        h("div", { class: "isle-members" }, members.map((name) => draggable(name))),
      );
    });
    replace(sea, boxes);
    if (!rows.children.length || rows.children.length !== model.names.length) replace(rows, model.names.map(mover));
    for (const input of rows.querySelectorAll("input")) input.checked = Number(input.value) === (place.get(input.dataset.node) ?? 0);
    focused?.focus();
  }

  function mover(name) {
    const options = Array.from({ length: islandCount() }, (_, number) => {
      const input = h("input", { type: "radio", name: `island-${name}`, value: number, "data-node": name, change: () => move(name, number) });
      return h("label", { class: "choice" }, input, h("span", {}, h("span", { class: "visually-hidden" }, `move ${name} to island `), String(number + 1)));
    });
    return h("fieldset", { class: "mover", "data-mover": name }, h("legend", {}, `Node ${name} on island`), h("div", { class: "choices" }, options));
  }

  function draggable(name) {
    const chip = h("span", { class: "boat", "data-node": name, "data-state": model.stateOf(name).state, title: `Drag ${name} to another island` }, name);
    chip.addEventListener("pointerdown", (event) => drag(event, chip, name));
    return chip;
  }

  function drag(start, chip, name) {
    start.preventDefault();
    chip.setPointerCapture(start.pointerId);
    chip.classList.add("dragged");
    const islandAt = (event) => {
      chip.style.pointerEvents = "none";
      const found = document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-island]");
      chip.style.pointerEvents = "";
      return found ?? null;
    };
    const onMove = (event) => {
      chip.style.transform = `translate(${event.clientX - start.clientX}px, ${event.clientY - start.clientY}px)`;
      for (const box of sea.children) setAttribute(box, "data-over", box === islandAt(event));
    };
    const onEnd = (event) => {
      chip.removeEventListener("pointermove", onMove);
      chip.classList.remove("dragged");
      chip.style.transform = "";
      for (const box of sea.children) setAttribute(box, "data-over", false);
      const target = event.type === "pointerup" ? islandAt(event) : null;
      if (target) move(name, Number(target.dataset.island));
    };
    chip.addEventListener("pointermove", onMove);
    chip.addEventListener("pointerup", onEnd, { once: true });
    chip.addEventListener("pointercancel", onEnd, { once: true });
  }

  return {
    root,
    update,
    islands,
    reset() {
      for (const name of model.names) place.set(name, 0);
      isTouched = false;
      draw();
    },
  };
}
