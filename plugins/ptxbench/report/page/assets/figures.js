// Figures are drawn when they come near the window; the library is unpacked for the first of them.
const plotly = once(async () => {
  const script = document.createElement('script');
  script.textContent = await unzipped('plotly');
  document.head.append(script);  // runs at once; the page's policy knows its hash
  return window.Plotly;
});
const figures = once(() => parsed('figures'));

function themed(text, colours) {
  if (!theme.isDark()) return JSON.parse(text);
  let dark = text;
  for (const [light, other] of Object.entries(colours)) dark = dark.replaceAll(light, other);
  return JSON.parse(dark);
}

const CONFIG = { displaylogo: false, displayModeBar: false, responsive: true, scrollZoom: false, doubleClick: false };

// One after the other, with the page's own frames between them.
let drawn = Promise.resolve();
const idle = () => new Promise((done) => {
  if (window.requestIdleCallback) requestIdleCallback(done, { timeout: 500 });
  else setTimeout(done, 200);
});
const frame = () => new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });

async function draw(plot) {
  await viewer.ready.then(idle);  // the library takes longer to start than all the rest
  const [library, texts] = await Promise.all([plotly(), figures()]);
  const select = byId(`${plot.dataset.card}-view`);
  const view = texts.cards[plot.dataset.card][select ? Number(select.value) : 0];
  const made = themed(view.figure, texts.dark);
  made.layout.showlegend = false;  // ours wraps on a phone and can be reached with the keyboard
  made.layout.margin.b = Math.min(made.layout.margin.b, 48);
  plot.setAttribute('aria-label', visible(view.words));
  await library.react(plot, made.data, { ...made.layout, height: Number(plot.dataset.height) }, CONFIG);
  key(plot, made.data, library);
  if (!plot.dataset.drawn) {
    plot.querySelector('.wait')?.remove();
    plot.dataset.drawn = 'yes';
    // On a phone it scrolls sideways, and what there is to see is at its right end.
    if (plot.dataset.card === 'roofline') plot.parentElement.scrollLeft = plot.parentElement.scrollWidth;
    plot.on('plotly_click', (event) => {
      const told = event.points[0].customdata;
      if (typeof told === 'string' && told.includes('\n')) viewer.openTurn(...told.split('\n'));
    });
  }
}

// The marks of plotly that we use, in a square of 14.
const SHAPES = {
  circle: 'M7 2a5 5 0 1 0 .01 0z', square: 'M2 2h10v10H2z', diamond: 'M7 1l6 6-6 6-6-6z', cross: 'M5 1h4v4h4v4H9v4H5V9H1V5h4z',
  x: 'M3.5 1L7 4.5 10.5 1 13 3.5 9.5 7 13 10.5 10.5 13 7 9.5 3.5 13 1 10.5 4.5 7 1 3.5z', 'triangle-up': 'M7 1l6 11H1z',
  star: 'M7 0l2 5h5l-4 3.2L11.5 14 7 10.5 2.5 14 4 8.2 0 5h5z', hexagon: 'M4 2h6l3 5-3 5H4L1 7z', line: 'M0 6h14v2H0z',
};

function swatch(trace) {
  const at = 'http://www.w3.org/2000/svg', svg = document.createElementNS(at, 'svg'), path = document.createElementNS(at, 'path');
  for (const [name, value] of Object.entries({ width: 14, height: 14, 'aria-hidden': 'true' })) svg.setAttribute(name, value);
  const marker = trace.marker || {}, known = SHAPES[marker.symbol] || (trace.type === 'bar' ? SHAPES.square : SHAPES.line);
  path.setAttribute('d', known);
  path.setAttribute('fill', marker.symbol && trace.line?.color || marker.color || trace.line?.color);
  svg.append(path);
  if (marker.pattern?.shape) {
    const lines = document.createElementNS(at, 'path');
    lines.setAttribute('d', marker.pattern.shape === '/' ? 'M2 8l6-6M4 12l8-8M9 12l3-3' : 'M2 6l6 6M3 2l9 9M8 2l4 4');
    lines.setAttribute('stroke', marker.pattern.fgcolor);
    svg.append(lines);
  }
  return svg;
}

// The legend. Pressing an entry hides its lines or bars; a flow and a ring have nothing to hide.
function key(plot, data, library) {
  const place = byId(`${plot.dataset.card}-key`), flows = data.some((trace) => ['sankey', 'pie'].includes(trace.type));
  const entries = data.filter((trace) => trace.name && trace.showlegend !== false && !['box', 'heatmap'].includes(trace.type));
  place.replaceChildren(...entries.map((trace) => {
    const name = el('span', {});
    name.textContent = unescaped(trace.name);
    if (flows) return el('li', {}, el('span', {}, swatch(trace), name));
    const button = el('button', { type: 'button', 'aria-pressed': 'true', onclick: () => {
      const show = button.getAttribute('aria-pressed') === 'false';
      const same = data.flatMap((other, at) => (other === trace || (trace.legendgroup && other.legendgroup === trace.legendgroup) ? [at] : []));
      library.restyle(plot, { visible: show }, same);
      button.setAttribute('aria-pressed', show);
    } }, swatch(trace), name);
    return el('li', {}, button);
  }));
}

// Names in figures are escaped for plotly, which reads some markup.
const unescaped = (name) => name.replace(/&lt;/g, '<').replace(/&gt;/g, '>').replace(/&amp;/g, '&');

const failed = (plot) => (error) => {
  plot.replaceChildren(el('p', { class: 'wait' }, `This figure could not be drawn: ${error.message}`));
};

const observer = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    observer.unobserve(target);
    drawn = drawn.then(() => draw(target)).catch(failed(target)).then(frame);
  }
}, { rootMargin: '250px' });

for (const plot of document.querySelectorAll('.plot')) {
  observer.observe(plot);
  byId(`${plot.dataset.card}-view`)?.addEventListener('change', () => draw(plot).catch(failed(plot)));
}
theme.changed(() => {
  for (const plot of document.querySelectorAll('.plot[data-drawn]')) draw(plot).catch(failed(plot));
});
