"use strict";
// What the pages share. The server puts it into each of them, as it does with their style.
const $ = (id) => document.getElementById(id);
// Ids and labels are anybody's: what cannot be seen, or turns the text around it, stands as its code.
const visible = (text) => text.replace(/[\p{Zl}\p{Zp}]|(?![\u200c\u200d])\p{C}/gu, (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
// The key stays in this tab alone: it is in no address, and is gone with the tab.
const KEY = "vicinal-api-key";
const keyed = () => sessionStorage.getItem(KEY);

async function request(path, options = {}) {
  const headers = { ...options.headers, ...(keyed() ? { "X-API-Key": keyed() } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) askForKey(keyed() ? "The server does not know this key." : "This server asks for an API key.");
  if (response.status === 403 && keyed()) askForKey("This key may not do that: use another.");
  return response;
}

function askForKey(reason) {
  $("key-note").textContent = reason;
  $("keys").hidden = false;
  $("forget").hidden = true;
  $("key").focus();
}

function startWithKeys(start) {
  $("keys").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = $("key").value.trim();
    // What a header cannot hold is no key.
    if (!/^[\x21-\x7e]+$/.test(given)) return askForKey("A key has letters, digits and signs, without spaces.");
    sessionStorage.setItem(KEY, given);
    $("key").value = "";
    $("keys").hidden = true;
    $("forget").hidden = false;
    start();
  });
  $("forget").addEventListener("click", () => { sessionStorage.removeItem(KEY); location.reload(); });
  $("forget").hidden = !keyed();
  start();
}

// An image element sends no key, so that with one its picture is fetched.
async function showPicture(image, path) {
  if (!keyed()) { image.src = path; return; }
  try {
    const response = await request(path);
    if (!response.ok) throw new Error(response.status);
    image.src = URL.createObjectURL(await response.blob());
  } catch { image.dispatchEvent(new Event("error")); }
}

// What a command opened the page with gets it a key, once; it is sent to nobody else, and not kept.
async function redeem() {
  const token = location.hash.slice(1);
  if (!token) return;
  const response = await fetch("label/key", { method: "POST", body: JSON.stringify({ token }), headers: { "content-type": "application/json" } });
  const answer = await response.json();
  if (!response.ok && !keyed()) throw new Error(answer.detail);
  history.replaceState(null, "", location.pathname + location.search);
  if (response.ok) sessionStorage.setItem(KEY, answer.key);
}
