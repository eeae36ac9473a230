// A list of which only the part in view is in the document. It has the focus itself and names its active option.
class VirtualList {
  constructor(node, { height, row, words, choose, pressed }) {
    Object.assign(this, { node, height, row, words, choose, pressed, items: [], active: -1, chosen: null });
    this.space = el('div', { class: 'space', role: 'presentation' });
    node.append(this.space);
    node.addEventListener('scroll', () => this.render(), { passive: true });
    node.addEventListener('keydown', (event) => this.key(event));
    node.addEventListener('click', (event) => {
      const option = event.target.closest('[role=option]');
      if (!option) return;
      this.pick(Number(option.dataset.at));
      this.pressed();
    });
    new ResizeObserver(() => this.render()).observe(node);
  }

  show(items) {
    this.items = items;
    this.space.style.height = `${items.length * this.height}px`;
    this.node.style.setProperty('--rows', `${items.length * this.height + 2}px`);  // with its border
    this.active = items.indexOf(this.chosen);
    this.node.scrollTop = this.active < 0 ? 0 : Math.max(0, (this.active - 1) * this.height);
    this.render();
  }

  render() {
    const first = Math.max(0, Math.floor(this.node.scrollTop / this.height) - 4);
    const last = Math.min(this.items.length, first + Math.ceil(this.node.clientHeight / this.height) + 8);
    const rows = [];
    for (let at = first; at < last; at++) {
      rows.push(el('div', {
        class: 'option', role: 'option', id: `${this.node.id}-${at}`, 'data-at': at, 'aria-setsize': this.items.length,
        'aria-posinset': at + 1, 'aria-selected': String(this.items[at] === this.chosen),
        'aria-label': this.words(this.items[at]), style: { top: `${at * this.height}px` },
      }, this.row(this.items[at])));
    }
    this.space.replaceChildren(...rows);
    const inView = this.active >= first && this.active < last;
    if (inView) this.node.setAttribute('aria-activedescendant', `${this.node.id}-${this.active}`);
    else this.node.removeAttribute('aria-activedescendant');
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.node.clientHeight / this.height) - 1);
    const to = {
      ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page,
      Home: 0, End: this.items.length - 1,
    }[event.key];
    if (to === undefined || !this.items.length) return;
    event.preventDefault();
    this.pick(Math.min(this.items.length - 1, Math.max(0, to)));
  }

  // Chooses an item and scrolls it into view.
  pick(at) {
    this.active = at;
    this.chosen = this.items[at];
    const top = at * this.height;
    if (top < this.node.scrollTop) this.node.scrollTop = top;
    else if (top + this.height > this.node.scrollTop + this.node.clientHeight) {
      this.node.scrollTop = top + this.height - this.node.clientHeight;
    }
    this.render();
    this.choose(this.chosen);
  }
}
