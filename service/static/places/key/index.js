// Key: sign in with one, see what it may, and forget it.
import { inWords } from "../../lib/api.js";
import { html, useState } from "../../lib/html.js";
import { go, href } from "../../lib/router.js";
import { forget, session, useKey } from "../../lib/session.js";
import { useStore } from "../../lib/store.js";
import { short } from "../../lib/text.js";
import { SCOPES } from "../../lib/words.js";
import { Button, Field } from "../../parts/field.js";

export const title = "Key";
export const needs = null;

function Asking({ note }) {
  const [given, give] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const use = async (event) => {
    event.preventDefault();
    if (isBusy || !given.trim()) return;
    setBusy(true);
    setError(null);
    try {
      await useKey(given.trim());
    } catch (problem) {
      setError(inWords(problem));
      setBusy(false);
    }
  };
  return html`<form class="key-card card stack" onSubmit=${use}>
    <div class="stack"><h1>Sign in with a key</h1>${note && !error && html`<p role="alert" dir="auto">${note}</p>`}</div>
    <${Field} label="Key" error=${error} hint="Whoever runs this server made it. It stays in this tab, and is gone when you close it.">${(control) => html`
      <input type="password" autocomplete="off" autocapitalize="off" spellcheck=${false} autofocus value=${given} onInput=${(event) => give(event.target.value)} ...${control} />`}<//>
    <div class="row end"><${Button} type="submit" kind="main" busy=${isBusy} disabled=${!given.trim()}>Use this key<//></div>
  </form>`;
}

function Rights({ me }) {
  const leave = async () => {
    go("galleries");
    await forget();
  };
  return html`<div class="key-card card stack">
    <h1>${me.asks_for_keys ? "Your key" : "No key is needed"}</h1>
    ${me.name && html`<p class="soft"><bdi>${short(me.name, 100)}</bdi></p>`}
    <ul class="key-rights">${Object.entries(SCOPES).map(([scope, { text }]) => {
      const has = me.scopes.includes(scope);
      return html`<li key=${scope} class=${has ? "" : "soft"}><span class=${`mark ${has ? "yes" : ""}`} aria-hidden="true">${has ? "✓" : "✕"}</span>
        <span>${text}${has ? "" : " (not with this key)"}</span></li>`;
    })}</ul>
    ${me.galleries === null ? html`<p>For all galleries.</p>` : html`<p>For these galleries alone:</p>
      <ul class="row">${me.galleries.map((one) => html`<li key=${one}><a class="button chip" href=${href("gallery", one)}><bdi>${short(one, 60)}</bdi></a></li>`)}</ul>`}
    ${me.asks_for_keys && html`<div class="row end"><${Button} onClick=${leave}>Forget this key<//></div>`}
  </div>`;
}

export function Place() {
  const { me, note } = useStore(session);
  return me ? html`<${Rights} me=${me} />` : html`<${Asking} note=${note} />`;
}
