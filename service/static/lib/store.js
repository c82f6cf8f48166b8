// A value that several parts see, and that tells them when it changes.
import { useLayoutEffect, useRef, useState } from "./html.js";

export function store(initial) {
  let value = initial;
  const heard = new Set();
  return {
    get: () => value,
    set(next) {
      const changed = typeof next === "function" ? next(value) : next;
      if (Object.is(changed, value)) return;
      value = changed;
      for (const tell of [...heard]) tell(value);
    },
    on(tell) {
      heard.add(tell);
      return () => heard.delete(tell);
    },
  };
}

const whole = (value) => value;

// The component is drawn again when what it selects becomes another value.
export function useStore(one, select = whole) {
  const [, draw] = useState(0);
  const selected = select(one.get());
  const last = useRef();
  last.current = { select, selected };
  useLayoutEffect(() => {
    const look = () => {
      if (!Object.is(last.current.select(one.get()), last.current.selected)) draw((n) => n + 1);
    };
    look();
    return one.on(look);
  }, [one]);
  return selected;
}
