// Preact and htm under one roof. Everything on a page is made here, so text from outside only ever becomes text nodes.
import { Fragment, createContext, h, render } from "./vendor/preact.js";
import htm from "./vendor/htm.js";

export { useCallback, useContext, useEffect, useErrorBoundary, useId, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
export { Fragment, createContext, h, render };
export const html = htm.bind(h);
