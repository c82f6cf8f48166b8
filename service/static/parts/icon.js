// Small drawings beside words: each stands for nothing without its word.
import { html } from "../lib/html.js";

const SHAPES = {
  galleries: "M4 4h7v7H4zM13 4h7v7h-7zM4 13h7v7H4zM13 13h7v7h-7z",
  gallery: "M4 5h16v14H4zM4 16l5-5 4 4 3-3 4 4M9 9.5h.01",
  search: "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 20 20",
  add: "M12 5v14M5 12h14",
  review: "M4 13l2-8h12l2 8v6H4zM4 13h5l1.5 2.5h3L15 13h5",
  pairs: "M4 6h7v12H4zM13 6h7v12h-7z",
  calibrate: "M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4",
  doubles: "M8 8h12v12H8zM4 16V4h12",
  jobs: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 8v4l3 2",
  key: "M14.5 4a5 5 0 0 0-4.7 6.7L4 16.5V20h3.5v-2.5h2.5V15l1.3-1.3A5 5 0 1 0 14.5 4zM16 8h.01",
  theme: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  photo: "M4 8h4l1.5-2.5h5L16 8h4v11H4zM12 10.5a3 3 0 1 0 0 6 3 3 0 0 0 0-6z",
  close: "M6 6l12 12M18 6 6 18",
};

export const Icon = ({ name }) => html`<svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><path d=${SHAPES[name]} /></svg>`;
