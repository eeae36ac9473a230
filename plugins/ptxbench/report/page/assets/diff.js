// Differences of two texts, given as lists of line numbers (equal lines have equal numbers). Myers 1986, with the equal
// ends cut off; texts with more edits than MOST count as replaced in their middle.
const MOST = 800;

function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let end = 0;
  while (
    end < before.length - start && end < after.length - start &&
    before[before.length - 1 - end] === after[after.length - 1 - end]
  ) end++;
  const middle = edits(before.slice(start, before.length - end), after.slice(start, after.length - end));
  return [
    ...before.slice(0, start).map((line) => [' ', line]), ...middle,
    ...before.slice(before.length - end).map((line) => [' ', line]),
  ];
}

function edits(a, b) {
  const trace = [];
  const reach = new Map([[1, 0]]);
  for (let d = 0; d <= a.length + b.length && d <= MOST; d++) {
    trace.push(new Map(reach));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || (k !== d && reach.get(k - 1) < reach.get(k + 1)) ? reach.get(k + 1) : reach.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkedBack(trace, a, b);
    }
  }
  return [...a.map((line) => ['-', line]), ...b.map((line) => ['+', line])];
}

function walkedBack(trace, a, b) {
  const found = [];
  let x = a.length, y = b.length;
  for (let d = trace.length - 1; d >= 0; d--) {
    const reach = trace[d], k = x - y;
    const down = k === -d || (k !== d && reach.get(k - 1) < reach.get(k + 1));
    const before = down ? k + 1 : k - 1;
    const fromX = reach.get(before), fromY = fromX - before;
    while (x > fromX && y > fromY && x > 0 && y > 0) found.push([' ', a[--x]]), y--;
    if (d > 0) found.push(down ? ['+', b[--y]] : ['-', a[--x]]);
  }
  return found.reverse();
}
