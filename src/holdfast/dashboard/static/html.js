// Preact and htm under one roof. Everything on a page is made here, so text from outside only ever becomes text nodes.
import { Fragment, createContext, h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export { useCallback, useContext, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.mjs";
export { Fragment, createContext, h, render };
export const html = htm.bind(h);
