// Events of the server, read as a stream: what a browser has for them sends no key.
import { send } from "./api.js";
import { rest } from "./server.js";

const LONGEST = 30_000;

// Reads one stream; tells whether it came to its end.
async function listen(response, seen) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return false;
    const blocks = (rest + value).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const fields = {};
      for (const line of block.split("\n")) {
        const [, name, text] = /^([^:]*): ?(.*)$/s.exec(line) ?? [];
        // What begins with a colon only keeps the line open.
        if (name) fields[name] = name in fields ? `${fields[name]}\n${text}` : text;
      }
      if (fields.data === undefined) continue;
      const name = fields.event ?? "message";
      seen(name, JSON.parse(fields.data), fields.id);
      if (name === "end") {
        await reader.cancel();
        return true;
      }
    }
  }
}

// Follows until the event `end`, until the server has nothing more (204), or until `signal` stops it. Where the line
// breaks it comes again after the last event that it saw; what a server refuses (401, 403, 404) is thrown.
export async function follow(path, { onEvent, signal }) {
  let last = null, pause = 1000;
  while (!signal?.aborted) {
    try {
      const headers = { Accept: "text/event-stream", ...(last === null ? {} : { "Last-Event-ID": last }) };
      const response = await send("GET", path, { headers, signal, tries: 1 });
      if (response.status === 204) return;
      const isOver = await listen(response, (name, data, id) => {
        last = id ?? last;
        pause = 1000;
        onEvent(name, data);
      });
      if (isOver) return;
    } catch (error) {
      if (signal?.aborted) return;
      if (error.status >= 400 && error.status < 500 && error.status !== 429) throw error;
    }
    await rest(pause, signal);
    pause = Math.min(2 * pause, LONGEST);
  }
}
