// Returns what a person with a keyboard, a screen reader or weak eyes would miss on the page as it is now.
() => {
  const problems = [];
  const shown = (element) => element.checkVisibility({ visibilityProperty: true, opacityProperty: false });
  const describe = (element) => `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${(element.textContent ?? "").trim().slice(0, 40)}`;

  // Names
  const nameOf = (element) => {
    const by = (element.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent ?? "").join(" ");
    const labels = [...(element.labels ?? [])].map((label) => label.textContent).join(" ");
    const alt = [...element.querySelectorAll("img")].map((image) => image.alt).join(" ");
    return [element.getAttribute("aria-label"), by, labels, element.textContent, alt, element.title].find((text) => text?.trim()) ?? "";
  };
  for (const control of document.querySelectorAll("a[href], button, input, select, textarea, [tabindex]:not([tabindex='-1'])")) {
    if (!shown(control)) continue;
    const name = ["INPUT", "SELECT", "TEXTAREA"].includes(control.tagName) ? control.getAttribute("aria-label") || [...control.labels].map((label) => label.textContent.trim()).join("") : nameOf(control);
    if (!name) problems.push(`no name: ${describe(control)}`);
  }
  for (const image of document.querySelectorAll("[role='img']")) if (shown(image) && !image.getAttribute("aria-label")) problems.push(`no label: ${describe(image)}`);
  for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) problems.push(`no alt: ${describe(image)}`);
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids.filter((id, place) => ids.indexOf(id) !== place))) problems.push(`two elements have the id ${id}`);
  if (document.documentElement.lang !== "en") problems.push("the page has no language");

  // Contrast
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const backgroundOf = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const color = rgba(getComputedStyle(at).backgroundColor);
      layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), rgba("Canvas"));
  };
  const luminance = (color) => {
    const [r, g, b] = color.slice(0, 3).map((part) => (part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let texts = 0;
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const element = text.parentElement;
    if (!text.textContent.trim() || !shown(element) || ["SCRIPT", "NOSCRIPT", "TITLE", "title"].includes(element.tagName) || element.closest(".visually-hidden, .skip, noscript")) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const isSvg = element instanceof SVGElement;
    const core = isSvg && element.parentElement.querySelector(".core");
    const background = core ? rgba(getComputedStyle(core).fill) : backgroundOf(isSvg ? element.closest("svg").parentElement : element);
    const foreground = over(rgba(isSvg ? style.fill : style.color), background);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    const ratio = contrast(foreground, background);
    if (ratio < least) problems.push(`contrast ${ratio.toFixed(2)}: ${describe(element)}`);
  }
  if (texts < 10) problems.push("there is hardly any text");
  return [...new Set(problems)];
}
