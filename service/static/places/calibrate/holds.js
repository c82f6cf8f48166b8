// What the rates of a calibration hold for: photos like those that were tried, or those of another day.
import { of100 } from "../../lib/text.js";

const HOLDS = {
  queries: "Measured with new photos: the rates hold for photos that are taken like those.",
  searches: "Measured with searches that were really made: the rates hold for searches like those.",
};

// A rate as it was measured, with the range that photos of another day will show; nothing where it was not measured.
export function expected({ evidence }, name) {
  const found = evidence?.rates[name];
  const { low, high } = evidence?.another_day?.[name] ?? found ?? {};
  return found && { rate: found.rate, low, high };
}

export function holdsFor(record) {
  if (record.source !== "leave_one_out") return HOLDS[record.source] ?? null;
  const found = expected(record, "fnir"), wrong = expected(record, "fpir");
  if (!Object.values(record.evidence?.another_day ?? {}).some(({ apart }) => apart !== null)) {
    return "Photos that were taken together were kept apart: the rates hold for photos of another day.";
  }
  const ends = [
    found && `of 100 things you have between ${of100(1 - found.high)} and ${of100(1 - found.low)} will be found`,
    wrong && `of 100 you lack between ${of100(wrong.low)} and ${of100(wrong.high)} will get a match`,
  ].filter(Boolean).join(", and ");
  return `Measured with the gallery's own photos: those that were taken together find each other more easily than photos of another day will. On another day, at a score of ${record.threshold.toFixed(4)}, ${ends}.`;
}
