// The list of trajectories, its filters, and the trajectory that is shown.
let STATES = [];
const glyph = (state) => el('span', { class: `mark${state.light ? ' light' : ''}`, style: { background: state.colour }, 'aria-hidden': 'true' }, state.glyph);

const viewer = (() => {
  const list = byId('trajectories'), detail = byId('detail'), told = byId('found');
  const failed = (error) => { told.textContent = `The turns could not be read: ${error.message}`; };
  const filters = ['model', 'case', 'outcome', 'order', 'search'].map((name) => byId(`by-${name}`));
  const [byModel, byCase, byOutcome, byOrder, bySearch] = filters;
  let all = [], cells = [], shown = null, part = 'verdict', ticket = 0, opening = null;

  const bestOf = (one) => (one.best ? `${one.best.toFixed(3)}x` : '–');

  const ready = parsed('index').then((index) => {
    const table = index.trajectories;
    STATES = index.states;
    cells = index.cells;
    all = table.label.map((label, at) => ({
      at, id: table.id[at], label: index.labels[label], case: index.cases[table.case[at]], arch: index.archs[table.arch[at]],
      variant: index.variants[table.variant[at]], place: table.place[at], given: table.given[at],
      turns: table.turns[at].map(([turn, state, target, speedup]) => ({ turn, state, target, speedup })),
    }));
    for (const one of all) {
      one.best = one.turns.reduce((best, turn) => Math.max(best, turn.speedup || 0), 0);
      one.name = `${one.label} ${one.case} ${one.arch} v${one.place[0]} t${one.place[1]} ${one.variant}`.toLowerCase();
    }
    fill(byModel, index.labels);
    fill(byCase, [...new Set(all.map((one) => `${one.case} on ${one.arch}`))]);
    const seen = new Set(all.flatMap((one) => one.turns.map((turn) => turn.state)));
    for (const state of seen) byOutcome.append(el('option', { value: state }, STATES[state].label));
    refresh();
    performance.mark('listed');  // what tests hold the time of opening to
    fromAddress();
  });
  const fill = (select, names) => names.forEach((name) => select.append(el('option', { value: name }, visible(name))));

  const rows = new VirtualList(list, { height: 64, row, words, choose: (one) => { opening = open(one).catch(failed); }, pressed: async () => {
    // On a phone the turns are below the list.
    await opening;
    if (detail.offsetTop > list.offsetTop + 10) byId('shown')?.scrollIntoView();
  } });

  function words(one) {
    return visible(`${one.name}, best ${bestOf(one)}: ${one.turns.map((turn) => STATES[turn.state].label).join(', ')}`);
  }

  function row(one) {
    const strip = [];
    const known = new Map(one.turns.map((turn) => [turn.turn, turn]));
    const most = Math.min(one.given, 10);
    for (let turn = 0; turn < most; turn++) {
      const state = known.get(turn) && STATES[known.get(turn).state];
      strip.push(state ? glyph(state) : el('span', { class: 'mark none', 'aria-hidden': 'true' }));
    }
    return [
      el('div', { class: 'top', 'aria-hidden': 'true' }, el('span', {}, el('strong', {}, visible(one.label)), ' ', visible(one.case)), el('span', { class: 'best' }, bestOf(one))),
      el('div', { class: 'strip', 'aria-hidden': 'true' }, strip, el('span', { class: 'where' }, `${visible(one.arch)} v${one.place[0]} t${one.place[1]}`)),
    ];
  }

  function refresh() {
    const words = bySearch.value.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = all.filter((one) =>
      (!byModel.value || one.label === byModel.value) && (!byCase.value || `${one.case} on ${one.arch}` === byCase.value) &&
      (!byOutcome.value || one.turns.some((turn) => turn.state === Number(byOutcome.value))) &&
      words.every((word) => one.name.includes(word)));
    if (byOrder.value === 'best') kept.sort((a, b) => b.best - a.best || a.at - b.at);
    const turns = kept.reduce((sum, one) => sum + one.turns.length, 0);
    told.textContent = `${count(kept.length, 'trajectory').replace('trajectorys', 'trajectories')}, ${count(turns, 'turn')}`;
    rows.show(kept);
  }
  for (const filter of filters) filter.addEventListener('input', refresh);

  async function open(one, wanted) {
    const mine = ++ticket;
    const block = one.block || (one.block = await parsed(`block-${one.at}`));
    if (mine !== ticket) return;
    const turn = block.turns.some((found) => found.turn === wanted) ? wanted : block.turns[0].turn;
    const again = shown && shown.one === one;
    shown = { one, block, texts: new Texts(block), turn };
    if (!again) frame();
    await choose(turn);
  }

  function frame() {
    const { one, block } = shown;
    const turns = el('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Turns' }, block.turns.map((turn, at) => {
      const state = STATES[one.turns[at].state], speedup = one.turns[at].speedup;
      return el('button', {
        type: 'button', role: 'tab', id: `turn-${turn.turn}`, 'data-value': turn.turn, 'aria-controls': 'panel',
        'aria-label': `Turn ${turn.turn}, ${state.label}${speedup ? `, ${speedup.toFixed(3)}x` : ''}`,
      }, glyph(state), String(turn.turn), speedup ? el('span', {}, `${speedup.toFixed(2)}x`) : null);
    }));
    const parts = el('div', { class: 'tabs parts', role: 'tablist', 'aria-label': 'Parts of the turn' }, PARTS.map(([name, title]) =>
      el('button', { type: 'button', role: 'tab', id: `part-${name}`, 'data-value': name, 'aria-controls': 'panel' }, title)));
    tabs(turns, (turn) => choose(Number(turn)));
    tabs(parts, (name) => { part = name; choose(shown.turn); });
    const end = block.end;
    detail.replaceChildren(el('div', { class: 'card' },
      el('div', { class: 'card-head' }, el('h3', { id: 'shown', tabindex: -1 }, `${visible(one.label)}: ${visible(one.case)} on ${visible(one.arch)}`),
        el('a', { class: 'back', href: '#turns-viewer' }, 'Back to the list')),
      el('p', { class: 'muted' }, `Prompt variant ${one.place[0]} (${visible(one.variant)}), trajectory ${one.place[1]}`,
        end ? `. Ended before turn ${end.turn}: ${visible(end.message)}` : ''),
      turns, parts, el('div', { class: 'panel', id: 'panel', role: 'tabpanel', tabindex: 0 })));
  }

  async function choose(number) {
    shown.turn = number;
    const { one, block, texts } = shown, mine = ++ticket;
    const at = block.turns.findIndex((turn) => turn.turn === number), turn = block.turns[at];
    const before = block.turns.slice(0, at).reverse().find((found) => found.kernel !== undefined);
    const [turns, parts] = detail.querySelectorAll('[role=tablist]');
    mark(turns, number);
    mark(parts, part);
    const panel = byId('panel');
    panel.setAttribute('aria-labelledby', `turn-${number} part-${part}`);
    const made = await partOf(part, turn, texts, before, block.end, STATES[one.turns[at].state]);
    if (mine !== ticket) return;
    panel.replaceChildren(...[made].flat(9).filter((node) => node !== null));
    history.replaceState(null, '', `#turn=${encodeURIComponent(`${one.label}\n${turn.id}`)}`);
  }

  async function openTurn(label, id) {
    await ready;
    const found = all.find((one) => one.label === label && id.startsWith(`${one.id}-turn`));
    if (!found) return;
    for (const filter of filters) if (filter !== byOrder) filter.value = '';
    refresh();
    rows.chosen = found;
    rows.show(rows.items);
    opening = open(found, Number(/-turn(\d+)$/.exec(id)[1])).catch(failed);
    await opening;
    byId('shown')?.scrollIntoView({ block: 'center' });
  }

  function fromAddress() {
    const told = /^#turn=(.*)$/.exec(location.hash);
    if (!told) return;
    let name = '';
    try { name = decodeURIComponent(told[1]); } catch { return; }
    if (name.includes('\n')) openTurn(...name.split('\n'));
  }
  addEventListener('hashchange', fromAddress);

  async function showCell(number) {
    await ready;
    const [model, workload] = cells[number];
    byModel.value = model;
    byCase.value = workload;
    byOutcome.value = bySearch.value = '';
    refresh();
    byId('turns-viewer').scrollIntoView();
    list.focus({ preventScroll: true });
    if (rows.items.length) rows.pick(0);
  }
  ready.catch(failed);
  return { ready, openTurn, showCell };
})();

document.addEventListener('click', (event) => {
  const button = event.target.closest('[data-cell]');
  if (!button) return;
  viewer.showCell(Number(button.dataset.cell));
});
