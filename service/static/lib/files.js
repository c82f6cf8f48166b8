// Files that were dropped or chosen, with the way to each below the folder that was taken.

// What systems put beside photos; nobody means to add it.
const OF_A_SYSTEM = /^(?:\.|Thumbs\.db$|desktop\.ini$|__MACOSX$|Icon\r$)/i;
const NO_PHOTO = /^(?:video|audio|text|font)\/|^application\/(?:pdf|zip|json|x-|vnd\.|msword)/;
const NO_PHOTO_NAME = /\.(?:mp4|mov|avi|mkv|mp3|wav|txt|csv|json|xml|html?|pdf|zip|docx?|xlsx?|pptx?|psd|ai|exe|dmg|db|ini|md)$/i;
const LONGEST_ID = 1024;

const inOrder = new Intl.Collator("en", { numeric: true });

const all = (reader) => new Promise((done, fail) => {
  const found = [];
  // A folder is told of in parts; an empty one ends it.
  const further = () => reader.readEntries((part) => {
    if (!part.length) return done(found);
    found.push(...part);
    return further();
  }, fail);
  further();
});

const fileOf = (entry) => new Promise((done, fail) => entry.file(done, fail));

async function walk(entry, path, found) {
  if (OF_A_SYSTEM.test(entry.name)) return;
  if (entry.isFile) {
    // What cannot be opened is told of by its name, like what is no photo.
    found.push({ file: await fileOf(entry).catch(() => null), path });
    return;
  }
  for (const one of await all(entry.createReader()).catch(() => [])) await walk(one, `${path}/${one.name}`, found);
}

// Each path once: the same file again is left away, another one of its name gets a number.
function once(found) {
  const taken = new Map();
  const kept = [];
  for (const { file, path } of found.sort((a, b) => inOrder.compare(a.path, b.path))) {
    const same = taken.get(path);
    if (same && same.size === file?.size && same.lastModified === file?.lastModified) continue;
    const free = same === undefined ? path : numbered(path, (one) => taken.has(one));
    taken.set(free, file);
    kept.push({ file, path: free });
  }
  return kept;
}

// "mug/1.jpg" -> "mug/1 (2).jpg", with the first number that is free
export function numbered(path, isTaken = () => false) {
  const [, start, end] = /^(.*?)((?:\.[^./]*)?)$/s.exec(path);
  let n = 2;
  while (isTaken(`${start} (${n})${end}`)) n += 1;
  return `${start} (${n})${end}`;
}

// What was dropped. The entries are asked for at once: after an event of the browser they are gone.
export async function filesOf(dataTransfer) {
  const entries = [...dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  const plain = [...dataTransfer.files];
  const found = [];
  for (const entry of entries) await walk(entry, entry.name, found);
  return once(entries.length ? found : plain.map((file) => ({ file, path: file.name })));
}

export function filesOfInput(input) {
  const found = [...input.files].map((file) => ({ file, path: file.webkitRelativePath || file.name }));
  return Promise.resolve(once(found.filter(({ path }) => !path.split("/").some((name) => OF_A_SYSTEM.test(name)))));
}

// The folder that a file lies in says what it shows: "shop/mug/1.jpg" -> "mug"
export const labelOf = (path) => path.split("/").at(-2) ?? null;

// Why a file is not sent at all; null where it may be a photo.
export function whyLeftOut({ file, path }, most) {
  if (!file) return "It cannot be opened.";
  if (NO_PHOTO.test(file.type) || (!file.type.startsWith("image/") && NO_PHOTO_NAME.test(path))) return "It is no photo.";
  if (file.size === 0) return "The file is empty.";
  if (file.size > most) return `It is larger than ${Math.floor(most / 1e6)} MB.`;
  if (path.length > LONGEST_ID) return "Its name, with its folders, is too long.";
  return null;
}
