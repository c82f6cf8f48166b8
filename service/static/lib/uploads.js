// Adds photos to a gallery, some at a time. What is there already under its id stays as it is, so that a part may be
// sent again after any fault, and nothing comes twice.
import { at, inWords, limits, post, Problem } from "./api.js";

// A part begins small, so that progress is seen, and grows while the server is quick.
const FIRST = 8;
const LEAST = 2;
const MOST = 32;
const QUICK = 1000;
const SLOW = 4000;
const MOST_BYTES = 8 * 2 ** 20;
const AT_ONCE = 2;
// Of a form beside its files.
const SPARE = 64 * 1024;
const LONGEST_PAUSE = 30;
const MOST_TRIES = 6;
const PREFIX = "urn:vicinal:problem:";
// What is wrong with these photos alone, and not with all that follow, too.
const isOfThese = ({ status, type }) => [400, 413, 415, 422].includes(status) || type === "item-exists";

const rest = (seconds, signal) => new Promise((done, fail) => {
  const stop = () => { clearTimeout(timer); fail(signal.reason); };
  const timer = setTimeout(() => { signal?.removeEventListener("abort", stop); done(); }, 1000 * seconds);
  signal?.addEventListener("abort", stop, { once: true });
});

// Takes from `waiting` what goes into one request: one file at least.
export function takePart(waiting, most, mostBytes) {
  let n = 0, size = 0;
  while (n < waiting.length && n < most && (n === 0 || size + waiting[n].file.size <= mostBytes)) {
    size += waiting[n].file.size;
    n += 1;
  }
  return waiting.splice(0, n);
}

export function nextSize(size, ms) {
  if (ms < QUICK) return Math.min(2 * size, MOST);
  return ms > SLOW ? Math.max(Math.ceil(size / 2), LEAST) : size;
}

// What the files hold now: one that changed or went since it was chosen would break the whole request.
async function read(part, failed) {
  const there = [];
  for (const one of part) {
    try {
      there.push({ ...one, content: new Blob([await one.file.arrayBuffer()], { type: one.file.type }) });
    } catch {
      failed(one, "unreadable", "It cannot be read any more: was it moved?");
    }
  }
  return there;
}

function formOf(part, onConflict) {
  const form = new FormData();
  form.append("on_conflict", onConflict);
  for (const { content, file, id, label } of part) {
    form.append("image", content, file.name);
    form.append("id", id);
    form.append("label", label ?? "");
  }
  return form;
}

// The answer to a part. Where the server has too much to do, or is away for a moment, it is asked again.
async function sent(path, form, signal, onPause) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await post(path, { form, signal });
    } catch (error) {
      if (signal?.aborted || !(error instanceof Problem)) throw error;
      const isBusy = [429, 502, 503, 504].includes(error.status);
      if (!(isBusy || error.status === 0) || tries >= MOST_TRIES) throw error;
      const seconds = Math.min(error.seconds ?? 2 ** (tries - 1), LONGEST_PAUSE);
      onPause(inWords(error));
      await rest(seconds, signal);
      onPause(null);
    }
  }
}

// files: [{file, id, label}]. `stopped` is what ended it before all was sent, and `left` what was not sent then.
export async function upload({ gallery, files, onConflict = "error", signal, onProgress = () => {} }) {
  const told = { added: 0, replaced: 0, unchanged: 0, failures: [], stopped: null, left: [] };
  let name = null, pause = null;
  const tell = () => onProgress({
    done: told.added + told.replaced + told.unchanged, failed: told.failures.length, total: files.length, name, pause,
  });
  const onPause = (sentence) => { pause = sentence; tell(); };
  const path = at(gallery, "/items"), waiting = [...files];

  const failed = (one, type, reason) => told.failures.push({ ...one, name: one.file.name, type: String(type).replace(PREFIX, ""), reason });
  function refuse(part, refused) {
    for (const { place, type, reason } of refused) failed(part[place], type, inWords(new Problem(422, String(type).replace(PREFIX, ""), reason)));
  }

  async function send(part) {
    const there = await read(part, failed);
    if (!there.length) return;
    try {
      const answer = await sent(path, formOf(there, onConflict), signal, onPause);
      told.added += answer.added.filter((one) => !one.replaced).length;
      told.replaced += answer.added.filter((one) => one.replaced).length;
      told.unchanged += answer.unchanged.length + answer.skipped.length;
      refuse(there, answer.refused);
    } catch (error) {
      if (!(error instanceof Problem) || !isOfThese(error)) throw error;
      const refused = error.members.errors;
      if (there.length > 1 && refused?.length === there.length && refused.every((one) => one.place !== undefined)) refuse(there, refused);
      else if (there.length > 1) for (const one of there) await send([one]);
      else failed(there[0], error.type, inWords(error));
    }
  }

  try {
    const { max_batch: most, max_request_bytes: bytes } = await limits();
    const mostBytes = Math.min(MOST_BYTES, bytes - SPARE);
    let size = FIRST;
    const work = async () => {
      while (waiting.length && !told.stopped) {
        const part = takePart(waiting, Math.min(size, most), mostBytes);
        const began = performance.now();
        name = part[0].file.name;
        tell();
        try {
          await send(part);
          size = nextSize(size, performance.now() - began);
        } catch (error) {
          told.stopped ??= error;
          told.left.push(...part);
        }
        tell();
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    told.left.push(...waiting);
  } catch (error) {
    told.stopped = error;
    told.left = files;
  }
  return told;
}
