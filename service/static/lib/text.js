// How things are written. Ids and labels are anybody's: what cannot be seen, or turns the text around it, stands as
// its code.
export const visible = (text) => String(text).replace(/[\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{C}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);

// A text of at most `n` signs, never cut within one.
export function short(text, n = 200) {
  const whole = visible(String(text).slice(0, 4 * n));
  const signs = [...whole];
  return signs.length > n || String(text).length > 4 * n ? `${signs.slice(0, n - 1).join("")}…` : whole;
}

// What the server says, which may begin small and end without a point.
export function sentence(text) {
  const [first = "", ...others] = visible(text ?? "");
  return `${first.toUpperCase()}${others.join("")}${!first || /[.!?…]$/.test(text) ? "" : "."}`;
}

export const number = (n) => Number(n).toLocaleString("en");

// 0.034 -> "3.4 %", which no line breaks; what is not all is never written as all, and what is not nothing not as
// nothing.
export function percent(share) {
  const value = 100 * share;
  if (share > 0 && value < 0.1) return "under 0.1\u00a0%";
  if (share < 1 && value > 99.9) return "over 99.9\u00a0%";
  const digits = value > 0 && value < 10 || value > 90 && value < 100 ? 1 : 0;
  return `${Number(value.toFixed(digits))}\u00a0%`;
}

// 0.96 -> "96", as in "96 of 100"
export function of100(share) {
  const value = 100 * share;
  if (share > 0 && value < 0.5) return "under 1";
  if (share < 1 && value >= 99.5) return "over 99";
  return value.toFixed(0);
}

const CLOCK = { hour: "2-digit", minute: "2-digit" };

// "today 14:03", "yesterday 09:12", "3 Mar 2026"
export function when(iso) {
  if (!iso) return "";
  const then = new Date(iso), now = new Date();
  const day = (one) => new Date(one.getFullYear(), one.getMonth(), one.getDate());
  const ago = Math.round((day(now) - day(then)) / 86_400_000);
  const clock = then.toLocaleTimeString("en-GB", CLOCK);
  if (ago === 0) return `today ${clock}`;
  if (ago === 1) return `yesterday ${clock}`;
  return then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
}

export function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const power = n < 1000 ? 0 : Math.min(Math.floor(Math.log10(n) / 3), units.length - 1);
  const value = n / 1000 ** power;
  return `${power === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${units[power]}`;
}

// "about 5 seconds", "about 3 minutes"
export function lasting(seconds) {
  const say = (n, unit) => `about ${n} ${unit}${n === 1 ? "" : "s"}`;
  if (seconds < 1.5) return "a moment";
  if (seconds < 90) return say(Math.round(seconds), "second");
  if (seconds < 5400) return say(Math.round(seconds / 60), "minute");
  return seconds < 129_600 ? say(Math.round(seconds / 3600), "hour") : say(Math.round(seconds / 86_400), "day");
}

// A value of metadata in one line.
export function valueText(value) {
  if (value === null || value === undefined) return "none";
  if (value === true || value === false) return value ? "yes" : "no";
  if (typeof value === "number") return String(value);
  return visible(typeof value === "object" ? JSON.stringify(value) : value);
}
