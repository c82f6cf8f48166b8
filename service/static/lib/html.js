// What every part of the page is written with: elements as templates, and hooks.
import { Component, Fragment, h, render } from "../vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../vendor/hooks.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { Component, Fragment, h, render };
export { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState };
