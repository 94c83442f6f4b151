// CSV for spreadsheets [RFC 4180]. A spreadsheet must not run a cell as a formula, so such a cell gets an apostrophe.
const FORMULA = /^[\s\p{C}]*[=+\-@|%]|^[\t\r\n]/u;

/** Return rows of objects as CSV with these columns. */
export function csv(columns, rows) {
  return [columns, ...rows.map((row) => columns.map((column) => row[column]))].map((cells) => `${cells.map(cell).join(",")}\r\n`).join("");
}

function cell(value) {
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = value === null || value === undefined ? "" : String(value);
  return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
}

/** Return rows as one JSON object a line. */
export const ndjson = (rows) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
