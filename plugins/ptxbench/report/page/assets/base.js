// Helpers. Text of models and tools reaches the page through textContent alone.
const byId = (id) => document.getElementById(id);

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'style') Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? '' : value);
  }
  for (const child of children.flat()) if (child !== null && child !== undefined) node.append(child);
  return node;
}

// Characters that cannot be seen, or turn the direction of writing: a source must not look like another one.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = (text) =>
  text.replace(UNSEEN, (one) => (one === '\r' ? '\u240d' : `\\u${one.charCodeAt(0).toString(16).padStart(4, '0')}`));

const count = (number, noun) => `${number.toLocaleString('en-US')} ${noun}${number === 1 ? '' : 's'}`;

// The browser may still be reading the page, of which the trajectories are the last part.
const read = new Promise((done) => {
  if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', done);
  else done();
});

async function unzipped(id) {
  if (!byId(id)) await read;
  const node = byId(id);
  if (!node) throw new Error(`the page has no part ${id}`);
  const raw = atob(node.textContent);
  const bytes = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at++) bytes[at] = raw.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return new Response(stream).text();
}

const parsed = async (id) => JSON.parse(await unzipped(id));

const once = (make) => {
  let made;
  return () => (made = made || make());
};

// Tabs after the ARIA pattern: one stop for Tab, arrows move and choose.
function tabs(list, choose) {
  list.addEventListener('keydown', (event) => {
    const all = [...list.querySelectorAll('[role=tab]')];
    const at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = all[(to + all.length) % all.length];
    next.focus();
    choose(next.dataset.value);
  });
  list.addEventListener('click', (event) => {
    const tab = event.target.closest('[role=tab]');
    if (tab) choose(tab.dataset.value);
  });
}

function mark(list, value) {
  for (const tab of list.querySelectorAll('[role=tab]')) {
    const chosen = tab.dataset.value === String(value);
    tab.setAttribute('aria-selected', chosen);
    tab.tabIndex = chosen ? 0 : -1;
    if (chosen) tab.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
  }
}

// Light and dark: the system's wish, unless the reader chose. A file's storage may be refused.
const theme = (() => {
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const select = byId('theme');
  const listeners = [];
  const stored = () => { try { return localStorage.getItem('ptxbench-theme'); } catch { return null; } };
  const isDark = () => (select.value === 'auto' ? dark.matches : select.value === 'dark');
  const apply = () => {
    document.documentElement.toggleAttribute('data-dark', isDark());
    for (const listener of listeners) listener();
  };
  if (['light', 'dark'].includes(stored())) select.value = stored();
  select.addEventListener('change', () => {
    try { localStorage.setItem('ptxbench-theme', select.value); } catch { /* it holds for this visit */ }
    apply();
  });
  dark.addEventListener('change', apply);
  apply();
  return { isDark, changed: (listener) => listeners.push(listener) };
})();
