// Filters as rows that can be chosen, and as the text that the API takes: each row is
// {field, kind, op, value, value2}, and all of them hold.
import { short } from "./text.js";

const PLAIN = /^[a-z_]\w*$/i;
const OF_KIND = {
  text: ["is", "is_not", "holds", "begins", "any", "none"],
  number: ["is", "least", "most", "between", "any", "none"],
  date: ["is", "least", "most", "between", "any", "none"],
  boolean: ["is", "any", "none"],
};
export const OPS = {
  is: "is", is_not: "is not", holds: "holds the text", begins: "begins with", least: "is at least", most: "is at most",
  between: "is between", any: "has a value", none: "has no value",
};
const DATES = { is: "is on", least: "is from", most: "is until" };

export const opText = (op, kind) => (kind === "date" && DATES[op]) || OPS[op];

// The name of a metadata key as filters write it; one within another is named by both.
export const field = (...keys) => ["metadata", ...keys].map((key) => (PLAIN.test(key) ? key : `"${key.replaceAll('"', '""')}"`)).join(".");

// A field as people read it: `metadata."on sale"` -> "on sale"
export const keyName = (name) => short(name.replace(/^metadata\./, "").replace(/^"(.*)"$/, (_, key) => key.replaceAll('""', '"')), 40);

// What most values of a key are; `kinds` counts them.
export function kindOf(kinds) {
  const known = Object.entries(kinds ?? {}).filter(([kind]) => kind in OF_KIND);
  return known.sort(([, some], [, others]) => others - some)[0]?.[0] ?? "text";
}

export const opsOf = (kinds) => OF_KIND[typeof kinds === "string" ? kinds : kindOf(kinds)];
export const takesValue = (op) => op !== "any" && op !== "none";

const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
const pattern = (text) => String(text).replace(/[\\%_]/g, "\\$&");

function literal(value, kind) {
  if (kind === "number") return String(Number(value));
  if (kind === "date") return `DATE ${quoted(value)}`;
  return kind === "boolean" ? String(value) : quoted(value);
}

const isNumber = (value) => /^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(String(value).trim());

// Whether a row says something yet.
export function isWhole({ kind, op, value, value2 }) {
  if (!takesValue(op)) return true;
  const given = op === "between" ? [value, value2] : [value];
  const fits = { number: isNumber, date: (one) => /^\d{4}-\d\d-\d\d$/.test(one), boolean: (one) => one === "true" || one === "false", text: (one) => String(one).trim() !== "" };
  return given.every((one) => one !== undefined && one !== null && fits[kind](one));
}

function rowText({ field: name, kind, op, value, value2 }) {
  const said = (one) => literal(one, kind);
  switch (op) {
    case "is": return `${name} = ${said(value)}`;
    case "is_not": return `${name} != ${said(value)}`;
    case "least": return `${name} >= ${said(value)}`;
    case "most": return `${name} <= ${said(value)}`;
    case "between": return `${name} BETWEEN ${said(value)} AND ${said(value2)}`;
    case "holds": return `${name} LIKE ${quoted(`%${pattern(value)}%`)}`;
    case "begins": return `${name} LIKE ${quoted(`${pattern(value)}%`)}`;
    case "any": return `${name} IS NOT NULL`;
    default: return `${name} IS NULL`;
  }
}

export const filterText = (rows) => rows.filter(isWhole).map(rowText).join(" AND ");

const NAME = String.raw`(id|label|metadata(?:\.(?:[a-z_0-9]+|"(?:[^"]|"")+"))+)`;
const VALUE = String.raw`('(?:[^']|'')*'|DATE '\d{4}-\d\d-\d\d'|true|false|-?\d[\w.+-]*)`;
const FORMS = [
  [new RegExp(`^${NAME} BETWEEN ${VALUE} AND ${VALUE}`, "i"), () => "between"],
  [new RegExp(`^${NAME} (=|!=|>=|<=) ${VALUE}`, "i"), (sign) => ({ "=": "is", "!=": "is_not", ">=": "least", "<=": "most" })[sign]],
  [new RegExp(`^${NAME} LIKE ('(?:[^']|'')*')`, "i"), () => "like"],
  [new RegExp(`^${NAME} IS (NOT )?NULL`, "i"), (not) => (not ? "any" : "none")],
];

const plain = (text) => text.slice(1, -1).replaceAll("''", "'");

function read(value) {
  if (value.startsWith("'")) return ["text", plain(value)];
  if (/^date/i.test(value)) return ["date", plain(value.slice(5))];
  return /^(true|false)$/i.test(value) ? ["boolean", value.toLowerCase()] : ["number", value];
}

function rowOf(form, name, groups) {
  const op = form(groups[0]);
  if (op === "any" || op === "none") return { field: name, kind: "text", op };
  if (op === "like") {
    const [, start, middle] = /^(%?)(.*)%$/s.exec(plain(groups[0])) ?? [];
    if (middle === undefined || /(^|[^\\])(\\\\)*[%_]/.test(middle)) return null;
    return { field: name, kind: "text", op: start ? "holds" : "begins", value: middle.replace(/\\([\\%_])/g, "$1") };
  }
  const [kind, value] = read(groups[op === "between" ? 0 : 1]);
  if (op !== "between") return { field: name, kind, op, value };
  const [other, value2] = read(groups[1]);
  return other === kind ? { field: name, kind, op, value, value2 } : null;
}

// The rows of a text that rows were written as; null where it says something else.
export function rowsOf(text) {
  const rows = [];
  for (let rest = (text ?? "").trim(); rest;) {
    const found = FORMS.map(([form, op]) => [form.exec(rest), op]).find(([match]) => match);
    if (!found) return null;
    const [[whole, name, ...groups], op] = found;
    const row = rowOf(op, name, groups);
    if (!row || !opsOf(row.kind).includes(row.op)) return null;
    rows.push(row);
    rest = rest.slice(whole.length);
    if (!rest) break;
    if (!/^ AND /i.test(rest)) return null;
    rest = rest.slice(5);
  }
  return rows;
}
