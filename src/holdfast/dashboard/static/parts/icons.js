// Icons: small drawings of lines in the colour of the text. They never stand alone without a label.
import { html } from "../html.js";

const PATHS = {
  overview: "M3 12h4l3-8 4 16 3-8h4",
  clients: "M4 5h16v10H4zM9 19h6M12 15v4",
  retained: "M5 4h14v5H5zM5 12h14M5 16h14M5 20h14",
  replays: "M4 12a8 8 0 1 0 3-6.2M4 4v4h4",
  subscriptions: "M5 19a9 9 0 0 1 0-14M19 5a9 9 0 0 1 0 14M8.5 15.5a5 5 0 0 1 0-7M15.5 8.5a5 5 0 0 1 0 7M12 12h.01",
  listeners: "M12 3v12M8 7l4-4 4 4M4 15v5h16v-5",
  nodes: "M12 3v5M12 8H5v4M12 8h7v4M3 12h4v5H3zM17 12h4v5h-4zM10 12h4v5h-4zM12 8v4",
  alarms: "M12 4l9 16H3zM12 10v5M12 18h.01",
  bans: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM5.6 5.6l12.8 12.8",
  keys: "M14 10a4 4 0 1 0-4 4l1 0 1 2h2l0 2h2l0 2h4v-3l-6.5-6.5",
  configuration: "M4 7h10M18 7h2M4 17h2M10 17h10M16 5v4M8 15v4",
  console: "M4 5h16v14H4zM7 9l3 3-3 3M12 15h5",
  menu: "M4 6h16M4 12h16M4 18h16",
  close: "M6 6l12 12M18 6L6 18",
  chevron: "M9 6l6 6-6 6",
  copy: "M8 8h11v12H8zM5 16V4h11",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5L21 21",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.5 1.5M17.5 17.5L19 19M19 5l-1.5 1.5M6.500 17.5L5 19",
  moon: "M20 14a8.500 8.500 0 0 1-10-10 8.500 8.500 0 1 0 10 10z",
  screen: "M3 5h18v11H3zM9 20h6",
  leave: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
  error: "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 7.500v5.500M12 16.500h.01",
  done: "M5 12.500l4.500 4.500L19 7.500",
  back: "M15 6l-6 6 6 6",
  refresh: "M20 12a8 8 0 1 1-2.500-5.800M20 3v4h-4",
  play: "M8 5l11 7-11 7z",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M18 10h.01M8 14h8",
  link: "M10 14a4 4 0 0 0 6 .4l3-3a4 4 0 0 0-5.700-5.700l-1.500 1.500M14 10a4 4 0 0 0-6-.4l-3 3a4 4 0 0 0 5.700 5.700l1.500-1.500",
  pause: "M8 5v14M16 5v14",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false"><path d=${PATHS[name]} /></svg>`;
