// Light or dark: as the system asks for it, until somebody chooses. The choice is kept in this browser.

import { replace, s } from "./dom.js";

const KEY = "corelkv.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export function setUpTheme(button) {
  const chosen = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const show = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    const isDark = (theme ?? (system.matches ? "dark" : "light")) === "dark";
    button.setAttribute("aria-label", isDark ? "Switch to the light theme" : "Switch to the dark theme");
    button.title = button.getAttribute("aria-label");
    replace(button, isDark ? sun() : moon());
    return isDark;
  };
  let isDark = show(chosen());
  system.addEventListener("change", () => (isDark = show(chosen())));
  button.addEventListener("click", () => {
    const theme = isDark ? "light" : "dark";
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // a browser that keeps nothing: the choice lasts as long as the page
    }
    isDark = show(theme);
  });
}

const icon = (...shapes) =>
  s("svg", { viewBox: "0 0 24 24", width: 20, height: 20, fill: "none", stroke: "currentColor", "stroke-width": 2, "stroke-linecap": "round", "aria-hidden": "true" }, shapes);

const sun = () =>
  icon(s("circle", { cx: 12, cy: 12, r: 4 }), s("path", { d: "M12 3v1.5M12 19.5V21M3 12h1.5M19.5 12H21M5.6 5.6l1.1 1.1M17.3 17.3l1.1 1.1M18.4 5.6l-1.1 1.1M6.7 17.3l-1.1 1.1" }));

const moon = () => icon(s("path", { d: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5z", "stroke-linejoin": "round" }));
