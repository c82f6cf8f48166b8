// Plain words for what the API calls by its names.

// What a search says. The mark stands beside the colour, for who does not see that.
export const VERDICTS = {
  match: { text: "Match", mark: "✓", kind: "yes" },
  unsure: { text: "Not sure", mark: "?", kind: "unsure" },
  no_match: { text: "No match", mark: "✕", kind: "no" },
};

// How far what a gallery promises can be relied on.
export const STANDINGS = {
  holds: { text: "holds", mark: "✓", kind: "yes" },
  unsure: { text: "not sure", mark: "?", kind: "unsure" },
  broken: { text: "broken", mark: "✕", kind: "no" },
  drifting: { text: "drifting", mark: "!", kind: "unsure" },
  never_measured: { text: "never measured", mark: "–", kind: "plain" },
  by_hand: { text: "set by hand", mark: "–", kind: "plain" },
  unusable: { text: "cannot be used", mark: "✕", kind: "no" },
};

// What there is to know of a threshold, in place of what the server tells those who run it by commands.
export const THRESHOLDS = {
  stale: { text: "The gallery has changed since its threshold was measured: how often it is right may have changed too.", way: "Measure it again" },
  broken: { text: "New photos were tried, and what this threshold promised does not hold.", kind: "no", way: "Measure it again" },
  default: { text: "This threshold came with the model: it was not measured with photos of this gallery.", way: "Measure it" },
  by_hand: { text: "Somebody chose this threshold by hand." },
  none: { text: "Nobody has measured yet which score is a match here.", way: "Measure it" },
  drift: { text: "What people search for has changed since the threshold was measured: how often it is right may have changed too.", kind: "unsure", way: "Answer some of these searches", place: "review" },
};

// What can be asked of a threshold: two parts of a sentence around a number of 100, and a usual one.
export const TARGETS = {
  fpir: { before: "Of 100 things I lack, at most", after: "get a match", usual: 5 },
  precision: { before: "Of 100 matches, at least", after: "are right", usual: 95 },
  fnir: { before: "Of 100 things I have, at most", after: "are missed", usual: 10 },
};

// What a key may: `may` goes on from "the right to".
export const SCOPES = {
  search: { text: "Search", may: "search" },
  write: { text: "Add, change and remove photos", may: "add, change and remove photos" },
  admin: { text: "Make galleries, calibrate, review and run jobs", may: "run galleries" },
};

export const JOBS = {
  kinds: {
    reindex: "Build again",
    calibrate: "Calibrate",
    check: "Check what was promised",
    compare: "Compare settings",
    duplicates: "Look for doubles",
  },
  states: {
    queued: { text: "Waits for its turn", kind: "plain", isFinal: false },
    running: { text: "Running", kind: "plain", isFinal: false },
    succeeded: { text: "Done", kind: "yes", isFinal: true },
    failed: { text: "Failed", kind: "no", isFinal: true },
    cancelled: { text: "Cancelled", kind: "unsure", isFinal: true },
  },
  stages: {
    look: "Looking at photos",
    copy: "Taking over what is known",
    embed: "Reading photos",
    neighbors: "Comparing photos with each other",
    refine: "Refining",
    publish: "Making it searchable",
    keep: "Keeping the result",
    try: "Trying settings",
    score: "Searching for each photo",
    compare: "Laying pictures onto each other",
    candidates: "Finding what is alike",
    pictures: "Reading pictures",
    "made copies": "Learning what a copy looks like",
    "search pictures": "Searching with pictures",
  },
};

const soon = ({ seconds }) => (seconds ? `in ${seconds} second${seconds === 1 ? "" : "s"}` : "in a moment");

// Sentences for problems whose own would not help whoever looks at the page; all others say it themselves.
export const PROBLEMS = {
  away: "The server does not answer. Is it running, and are you connected to it?",
  "no-answer-of-the-service": ({ status }) => `Something between this page and the server answered for it (${status}).`,
  unauthorized: "The server does not know this key.",
  "too-many-requests": (problem) => `Too much is asked at once. Try again ${soon(problem)}.`,
  "decoding-busy": (problem) => `The server is busy with other photos. Try again ${soon(problem)}.`,
  "gallery-busy": (problem) => `Something else is changing this gallery. Try again ${soon(problem)}.`,
  "search-not-found": "This search is not kept any more: search with the photo again.",
  "job-conflict": "Another job works on this gallery. Wait until it is done, or cancel it.",
  "body-too-large": "This is more than the server takes at once.",
  "not-an-image": ({ detail }) => `This file is no photo that can be read: ${detail}.`,
};
