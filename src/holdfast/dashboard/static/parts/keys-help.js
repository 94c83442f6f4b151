// The list of keys: what "?" shows.
import { html } from "../html.js";
import { Dialog } from "./dialog.js";

const KEYS = [
  ["Everywhere", [[["/"], "go to the search of the page"], [["?"], "show this list"], [["Tab"], "go to the next link, button or field"], [["Esc"], "close a dialog or a menu; empty a search"]]],
  ["In the topic tree", [[["↑", "↓"], "go to the topic above or below"], [["→"], "open a level, or go to its first topic"], [["←"], "close a level, or go to its parent"], [["Home", "End", "Page Up", "Page Down"], "go to the first or last, or a page on"], [["a", "b", "…"], "go to the next name that begins so"], [["Enter"], "show the topic"]]],
  ["In tabs and choices", [[["←", "→"], "choose the neighbour"]]],
];

export const KeysHelp = ({ onClose }) => html`<${Dialog} title="Keys" onClose=${onClose}><div class="body keys">
  ${KEYS.map(([place, keys]) => html`<section key=${place}><h3>${place}</h3><dl class="facts">${keys.map(([names, what]) => html`<div><dt>${names.map((name) => html`<kbd>${name}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl></section>`)}
  </div><footer><button class="primary" onClick=${onClose}>Close</button></footer><//>`;
