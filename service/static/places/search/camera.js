// A photo taken with the camera of this device, which is seen before it is taken.
import { html, useEffect, useRef, useState } from "../../lib/html.js";
import { Dialog } from "../../parts/dialog.js";
import { Button } from "../../parts/field.js";
import { Fault, Waiting } from "../../parts/notice.js";

const WIDE = 1920;
const WHY = {
  NotAllowedError: "The browser does not let this page use the camera: allow it beside the address, then try again.",
  NotFoundError: "This device has no camera.",
};

// Browsers lend a camera to pages of this machine and of https alone; on phones their own is the better one.
export const hasCamera = () => Boolean(navigator.mediaDevices?.getUserMedia) && !matchMedia("(pointer: coarse)").matches;

export function Camera({ onFile, onClose }) {
  const video = useRef();
  const [{ isReady, error }, set] = useState({ isReady: false, error: null });
  useEffect(() => {
    let stream = null, isOver = false;
    const stop = () => stream?.getTracks().forEach((one) => one.stop());
    navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment", width: { ideal: WIDE } } }).then((lent) => {
      stream = lent;
      if (isOver) stop();
      else video.current.srcObject = lent;
    }).catch(({ name }) => set({ isReady: false, error: WHY[name] ?? "The camera cannot be used: does another program hold it?" }));
    return () => { isOver = true; stop(); };
  }, []);
  const take = () => {
    const { videoWidth: width, videoHeight: height } = video.current;
    const canvas = Object.assign(document.createElement("canvas"), { width, height });
    canvas.getContext("2d").drawImage(video.current, 0, 0);
    canvas.toBlob((blob) => { onClose(); onFile(new File([blob], "camera.jpg", { type: blob.type })); }, "image/jpeg", 0.92);
  };
  return html`<${Dialog} title="Take a photo" onClose=${onClose}>
    <${Fault} error=${error} />
    ${!isReady && !error && html`<${Waiting} text="Waiting for the camera…" />`}
    <video ref=${video} class="search-video" hidden=${!isReady} autoplay muted playsinline aria-label="What the camera sees" onLoadedMetadata=${() => set({ isReady: true, error: null })}></video>
    <div class="row end"><${Button} onClick=${onClose}>Cancel<//><${Button} kind="main" disabled=${!isReady} onClick=${take}>Take the photo<//></div><//>`;
}
