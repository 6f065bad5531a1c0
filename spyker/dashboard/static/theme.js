// Light and dark theme: the system's, unless the user chooses.

let palette = null;
const watchers = [];

/** A colour of the style sheet by name. */
export function colour(name) {
  palette ??= {};
  palette[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  return palette[name];
}

const SERVERS = 8;

/** The colour of a server or region. */
export function serverColour(index) {
  return colour(`s${index % SERVERS}`);
}

/** The colour of a run. */
export function runColour(run) {
  return run.colour === "ink" ? colour("ink") : run.colour;
}

/** Call a function when the colours change. */
export function onTheme(watcher) {
  watchers.push(watcher);
}

function changed() {
  palette = null;
  for (const watcher of watchers) watcher();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Let a button switch between light and dark. */
export function startTheme(button) {
  const show = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    button.title = isDark() ? "Light colours (d)" : "Dark colours (d)";
  };
  try {
    const kept = localStorage.getItem("spyker-theme");
    if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;
  } catch {
    // browsers may have no storage for local files
  }
  button.addEventListener("click", () => {
    const theme = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("spyker-theme", theme);
    } catch {
      // the choice is not stored
    }
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    show();
    changed();
  });
  show();
  changed();
}
