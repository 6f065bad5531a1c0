// Creation of elements. Values of a run are inserted as text, never as markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners (on…) and children, which are elements or text. */
export function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svgEl(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Set the text of an element if it has changed. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A canvas in the screen's resolution; calls back when its size changes. */
export function fitCanvas(canvas, holder, changed) {
  const fit = () => {
    const ratio = Math.min(3, window.devicePixelRatio || 1);
    const width = Math.max(1, holder.clientWidth);
    const height = Math.max(1, holder.clientHeight);
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
    }
    canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    changed(width, height);
  };
  new ResizeObserver(fit).observe(holder);
  fit();
}

let announcer;

/** Announce a text to screen readers. */
export function announce(text) {
  announcer ??= document.getElementById("announcer");
  if (announcer) setText(announcer, text);
}
