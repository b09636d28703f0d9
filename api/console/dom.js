// Elements from code. Text is only ever set as text: nothing here can turn a value into markup.

const SVG = "http://www.w3.org/2000/svg";

/** Makes an HTML element. Attributes that are functions become event listeners; null ones are left out. */
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Makes an SVG element. */
export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true && !/^(data|aria)-/.test(name) ? "" : String(value));
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : String(child));
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Sets text only if it differs, so that nothing is laid out again for nothing. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(name);
  else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

export function panel(title, note, ...body) {
  const head = h("header", { class: "panel-head" }, h("h2", {}, title), note && h("span", { class: "muted" }, note));
  return { root: h("section", { class: "panel" }, head, h("div", { class: "panel-body" }, body)), head };
}

let fields = 0;

/** A labelled control. */
export function field(label, control, attributes = {}) {
  const id = control.id || `field-${++fields}`;
  control.id = id;
  return h("div", { class: `field ${attributes.class || ""}` }, h("label", { for: id }, label), control);
}

/** A labelled range, with its value in words beside the label. */
export function slider(label, attributes, text) {
  const input = h("input", { type: "range", ...attributes });
  const output = h("output", { for: attributes.id });
  const show = () => {
    setText(output, text(Number(input.value)));
    setAttribute(input, "aria-valuetext", output.textContent);
  };
  input.addEventListener("input", show);
  show();
  const root = h("div", { class: "field" }, h("div", { class: "label-row" }, h("label", { for: attributes.id }, label), output), input);
  return { root, value: () => Number(input.value) };
}

/** A chip that says a colour in words, too. */
export function chip(color, text = color) {
  return h("span", { class: "chip", "data-color": color }, text);
}
