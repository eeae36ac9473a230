// One turn: what was asked, answered, built, measured and judged.
const PARTS = [
  ['verdict', 'Verdict'], ['kernel', 'Kernel'], ['diff', 'Diff'], ['prompt', 'Prompt'], ['reasoning', 'Reasoning'],
  ['reply', 'Reply'], ['feedback', 'Feedback'],
];
const CONTEXT = 3;
const NUMBER = new Intl.NumberFormat('en-US', { maximumSignificantDigits: 4 });
const FORMATS = {
  text: (value) => value, hash: (value) => value.slice(0, 16), count: (value) => value.toLocaleString('en-US'),
  usd: (value) => `USD ${value.toFixed(4)}`, s: (value) => `${value.toFixed(1)} s`, tflops: (value) => `${value.toFixed(0)} TFLOP/s`,
  ms: (value) => (value >= 1000 ? `${(value / 1000).toFixed(1)} s` : `${value.toFixed(0)} ms`),
};

class Texts {
  constructor(block) { this.block = block; }

  // The numbers of a text's lines.
  numbers(text) {
    const runs = this.block.texts[text], found = [];
    for (let at = 0; at < runs.length; at += 2) for (let n = 0; n < runs[at + 1]; n++) found.push(runs[at] + n);
    return found;
  }

  text(text) { return this.numbers(text).map((number) => this.block.lines[number]).join('\n'); }
}

const shared = {};
const sharedText = (name) => (shared[name] = shared[name] || parsed(`shared-${name.slice(1)}`).then((block) => new Texts(block).text(0)));

async function prose(texts, reference) {
  const text = typeof reference === 'string' ? await sharedText(reference) : texts.text(reference);
  return el('pre', { class: 'text', tabindex: 0 }, visible(text));
}

const missing = (text) => el('p', { class: 'muted' }, text);
const facts = (rows) => el('dl', { class: 'facts' }, rows.map(([title, value]) => el('div', {}, el('dt', {}, title), el('dd', {}, value))));

function verdictPart(turn, texts, state) {
  const verdict = turn.verdict;
  const ratio = (value, digits = 3) => (value === null || value === undefined ? null : Number(value).toFixed(digits));
  const interval = (ends) => (ends ? `, 95% ${NUMBER.format(ends[0])} to ${NUMBER.format(ends[1])}` : '');
  const numbers = [
    ['Speedup', verdict.speedup === null ? null : `${ratio(verdict.speedup)}x`],
    ['Latency', verdict.latency_ms === null ? null : `${NUMBER.format(verdict.latency_ms)} ms${interval(verdict.latency_interval_ms)} (${verdict.latency_source})`],
    ['Baseline', verdict.baseline_ms === null ? null : `${NUMBER.format(verdict.baseline_ms)} ms${interval(verdict.baseline_interval_ms)}`],
    ['Share of roofline', verdict.roofline_share === null ? null : `${(100 * verdict.roofline_share).toFixed(1)}%`],
    ['Useful share', ratio(verdict.useful_share)],
    ['Relative RMS error', verdict.relative_rms === null ? null : Number(verdict.relative_rms).toExponential(2)],
    ['Beyond tolerance', verdict.mismatch_share ? Number(verdict.mismatch_share).toExponential(2) : null],
    ['Flags', verdict.flags.length ? verdict.flags.join(', ') : null],
  ].filter(([, value]) => value !== null && value !== undefined);
  const block = (title, rule, message) => [
    el('h4', {}, title), el('div', { class: 'rule' }, visible(rule)), el('p', { class: 'said' }, visible(message)),
  ];
  return [
    el('div', { class: 'verdict' }, glyph(state), el('strong', {}, state.label)),
    el('div', { class: 'rule' }, visible(verdict.rule)),
    el('p', { class: 'said' }, visible(turn.fault || verdict.message)),
    numbers.length ? facts(numbers) : null,
    block(`Target instructions: ${verdict.target.replace('_', ' ')}`, verdict.target_rule, verdict.target_message),
    block(`Memory safety: ${verdict.safe.replace('_', ' ')}`, '', verdict.safe_message),
    families(turn.families),
    resources(turn.resources || []),
    el('h4', {}, 'Facts'), facts(turn.facts.map(([title, kind, value]) => [title, visible(String(FORMATS[kind](value)))])),
    turn.log === undefined ? null : [el('h4', {}, 'Compiler'), el('pre', { class: 'text', tabindex: 0 }, visible(texts.text(turn.log)))],
  ];
}

function grid(title, heads, rows) {
  if (!rows.length) return null;
  return [
    el('h4', {}, title),
    el('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': title }, el('table', { class: 'small' },
      el('thead', {}, el('tr', {}, heads.map((head) => el('th', { scope: 'col' }, head)))),
      el('tbody', {}, rows.map((row) => el('tr', {}, row.map((cell) => el('td', {}, cell))))))),
  ];
}

const amount = (value) => (value === null ? '–' : value.toLocaleString('en-US'));
const families = (rows) => grid(
  'SASS families', ['opcode', 'lines in the object', 'thread executions', ''],
  rows.map(([name, lines, executed, selected]) => [visible(name), amount(lines), amount(executed), selected ? el('span', { class: 'chip' }, 'selected') : '']),
);
const resources = (rows) => grid(
  'Resources', ['kernel', 'registers', 'static shared bytes', 'spilled bytes'],
  rows.map(([name, ...numbers]) => [visible(name), ...numbers.map(amount)]),
);

const CODE = { class: 'code', tabindex: 0, role: 'region' };
const line = (kind, before, after, sign, text) => el('div', { class: `row ${kind}` },
  el('span', { class: 'n', 'aria-hidden': 'true' }, before), after === null ? null : el('span', { class: 'n', 'aria-hidden': 'true' }, after),
  el('span', { class: 't' }, `${sign}${visible(text)}`));

function kernelPart(turn, texts) {
  if (turn.kernel === undefined) return missing('No kernel was found in the reply.');
  const text = texts.text(turn.kernel), lines = text.split('\n');
  const copy = el('button', { type: 'button', class: 'link', onclick: async () => {
    try { await navigator.clipboard.writeText(text); copy.textContent = 'Copied'; } catch { copy.textContent = 'The browser refused'; }
  } }, 'Copy');
  return [
    el('div', { class: 'bar' }, el('span', { class: 'muted' }, count(lines.length, 'line')), copy),
    el('div', { ...CODE, 'aria-label': 'Kernel' }, el('div', { class: 'rows' }, lines.map((one, at) => line('', at + 1, null, '', one)))),
  ];
}

function diffPart(turn, texts, before) {
  if (turn.kernel === undefined) return missing('No kernel was found in the reply.');
  if (!before) return missing('There is no earlier kernel in this trajectory.');
  const changes = difference(texts.numbers(before.kernel), texts.numbers(turn.kernel));
  const added = changes.filter(([kind]) => kind === '+').length, dropped = changes.filter(([kind]) => kind === '-').length;
  const box = el('div', { class: 'rows' });
  fold(box, changes, texts.block.lines);
  return [
    el('div', { class: 'bar' }, el('span', { class: 'muted' }, `Against turn ${before.turn}: ${count(added, 'line')} added, ${dropped.toLocaleString('en-US')} removed`)),
    added + dropped ? el('div', { ...CODE, 'aria-label': `Diff to turn ${before.turn}` }, box) : missing('The kernel is the same.'),
  ];
}

// Long runs of equal lines are folded into a button.
function fold(box, changes, lines) {
  const near = new Uint8Array(changes.length);
  changes.forEach(([kind], at) => { if (kind !== ' ') near.fill(1, Math.max(0, at - CONTEXT), at + CONTEXT + 1); });
  let before = 0, after = 0, hidden = [];
  const flush = () => {
    if (!hidden.length) return;
    const rows = hidden, button = el('button', { type: 'button', class: 'fold' }, `⋯ ${count(rows.length, 'unchanged line')}`);
    button.addEventListener('click', () => {
      const next = rows.map((make) => make());
      next[0].tabIndex = -1;
      button.replaceWith(...next);
      next[0].focus({ preventScroll: true });
    });
    box.append(button);
    hidden = [];
  };
  changes.forEach(([kind, number], at) => {
    if (kind !== '+') before++;
    if (kind !== '-') after++;
    const numbers = [kind === '+' ? '' : before, kind === '-' ? '' : after];
    const make = () => line({ '+': 'add', '-': 'drop', ' ': '' }[kind], ...numbers, `${kind} `, lines[number]);
    if (near[at]) { flush(); box.append(make()); } else hidden.push(make);
  });
  flush();
}

async function promptPart(turn, texts) {
  if (!turn.prompt) return missing('No prompt is stored for this turn.');
  const follows = turn.follows === null ? null : missing(`This follows everything that was said up to the reply of turn ${turn.follows}.`);
  const messages = await Promise.all(turn.prompt.map(async ([role, reference]) => [el('h4', {}, role === 'system' ? 'System' : 'User'), await prose(texts, reference)]));
  return [follows, messages];
}

const textPart = (name, none) => async (turn, texts) => (turn[name] === undefined ? missing(none) : prose(texts, turn[name]));
const feedbackPart = (turn, texts, before, end) => {
  if (turn.feedback !== undefined) return prose(texts, turn.feedback);
  return missing(end && end.turn === turn.turn + 1
    ? `The trajectory ended after this turn: ${visible(end.message)}.` : 'No later turn was told about this one.');
};
const reasoningPart = textPart('reasoning', 'The provider returned no reasoning.');
const replyPart = textPart('reply', 'No reply is stored for this turn.');

async function partOf(name, turn, texts, before, end, state) {
  switch (name) {
    case 'kernel': return kernelPart(turn, texts);
    case 'diff': return diffPart(turn, texts, before);
    case 'prompt': return promptPart(turn, texts);
    case 'reasoning': return reasoningPart(turn, texts);
    case 'reply': return replyPart(turn, texts);
    case 'feedback': return feedbackPart(turn, texts, before, end);
    default: return verdictPart(turn, texts, state);
  }
}
