// A picture, or a quiet word where there is none.
import { html, useEffect, useState } from "../lib/html.js";
import { pictureUrl } from "../lib/pictures.js";

export function Picture({ path, alt = "", className = "", onMissing }) {
  const [shown, show] = useState({ path: null, url: null, isMissing: false });
  const [failed, fail] = useState(null);
  const isAgain = failed === path;
  useEffect(() => {
    const stop = new AbortController();
    pictureUrl(path, stop.signal, isAgain).then(
      (url) => { if (!stop.signal.aborted) show({ path, url, isMissing: false }); },
      (error) => { if (!stop.signal.aborted) miss(error); },
    );
    return () => stop.abort();
  }, [path, isAgain]);
  const miss = (error) => {
    show({ path, url: null, isMissing: true });
    onMissing?.(error);
  };
  const isOld = shown.path !== path;
  if (!isOld && shown.isMissing) {
    return html`<span class=${`picture missing ${className}`} role=${alt && "img"} aria-label=${alt && `${alt}: no picture`}>no picture</span>`;
  }
  if (isOld || !shown.url) return html`<span class=${`picture ${className}`}></span>`;
  return html`<img class=${`picture ${className}`} src=${shown.url} alt=${alt} loading="lazy" decoding="async" draggable=${false}
    onError=${() => (isAgain ? miss(null) : fail(path))} />`;
}
