// Keys for looking at a sample: zooming into a picture and moving it, scrolling a text.

import { singleKeysOn } from "./classes.js";

const ZOOM_STEP = 1.5;
const PAN_STEP = 0.2; // of the width or height of the stage
const LINES_PX = 80;
const PAGE = 0.9; // of the visible height of a text
const DIRECTIONS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// The function that a key calls, or null if it is no such key now.
// zoom: of the stage `container`; classes: their keys are not for looking
export function lookAction(event, zoom, container, classes) {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const words = container.querySelector(".text");
  if (words !== null) return scrollAction(event.key, words);
  if (zoom.picture === null) return null;
  const direction = DIRECTIONS[event.key];
  if (direction !== undefined && (event.shiftKey || zoom.active)) return () => zoom.pan(...direction.map((step) => step * PAN_STEP));
  if (event.key === "Escape" && zoom.active) return () => zoom.reset();
  if (!singleKeysOn() || classes.some(({ key }) => key === event.key)) return null;
  if (event.key === "+" || event.key === "=") return () => zoom.by(ZOOM_STEP);
  if (event.key === "-") return () => zoom.by(1 / ZOOM_STEP);
  const searches = classes.some(({ key }) => key === null); // then digits begin a search
  return event.key === "0" && !searches ? () => zoom.reset() : null;
}

// Zoom one step in or out.
export function zoomStep(zoom, inwards) {
  zoom.by(inwards ? ZOOM_STEP : 1 / ZOOM_STEP);
}

function scrollAction(key, words) {
  const page = PAGE * words.clientHeight;
  const steps = { ArrowUp: -LINES_PX, ArrowDown: LINES_PX, PageUp: -page, PageDown: page, Home: -words.scrollHeight, End: words.scrollHeight };
  return key in steps ? () => words.scrollBy({ top: steps[key] }) : null;
}
