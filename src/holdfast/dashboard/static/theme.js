// Light or dark: as the system says, or as the user has chosen in this browser.
import { useState } from "./html.js";
import { redrawCharts } from "./parts/chart.js";

const KEY = "holdfast-theme";
export const THEMES = ["system", "light", "dark"];

function stored() {
  try {
    return THEMES.includes(localStorage.getItem(KEY)) ? localStorage.getItem(KEY) : "system";
  } catch {
    return "system";  // the browser keeps nothing for this page
  }
}

/** Use the stored choice. */
export function applyTheme(theme = stored()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  redrawCharts();
}

export function useTheme() {
  const [theme, setTheme] = useState(stored);
  const choose = (next) => {
    try {
      localStorage.setItem(KEY, next);
    } catch { /* then the choice lasts as long as the page */ }
    applyTheme(next);
    setTheme(next);
  };
  return [theme, choose];
}
