// Copies to the clipboard, and files made in the browser.
import { html } from "../html.js";
import { Icon } from "./icons.js";
import { toast } from "./notices.js";

/** Copy text as it is, also what was shown as marks. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyOld(text);  // a page over plain HTTP from another machine has no clipboard
  }
  toast(`Copied: ${what}`);
}

function copyOld(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  const place = document.querySelector("dialog[open]") ?? document.body;
  place.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export const CopyButton = ({ text, what, icon = "copy" }) => html`<button class="plain" title=${`Copy ${what}`} aria-label=${`Copy ${what}`} onClick=${() => copy(text, what)}><${Icon} name=${icon} /></button>`;

/** Let the browser save text as a file. */
export function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
