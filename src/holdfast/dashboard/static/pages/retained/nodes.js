// The nodes of the topic tree that were loaded, level by level. They outlive the page, so that it opens as it was left.
import { Exactly, get } from "../../api.js";
import { bytesIn, preview } from "../../payload.js";

const PART = 500;
const BEGINNING = 60;
/** milliseconds until the first and before the last look for figures that the broker is still counting */
const FIRST_LOOK = 400;
const LAST_LOOK = 13_000;

/** One open tree. `draw` is called after each change. */
export class Nodes {
  constructor() {
    this.root = { topic: undefined, level: 0, open: true, children: [], cursor: null, done: false, loading: false, error: null, loaded: false, parent: null };
    this.rows = [];
    this.busy = 0;  // how many pieces of work are under way
    this.draw = () => {};
    this.over = false;  // another tree has taken its place
  }

  /** Load the next part of the children of a node. */
  async load(node) {
    if (node.loading || node.done) return;
    node.loading = true;
    node.error = null;
    this.busy += 1;
    this.arrange();
    try {
      const topic = node === this.root ? undefined : new Exactly(node.topic);
      const cursor = node.cursor;
      const answer = await get("/mqtt/retainer/tree", { topic, limit: PART, cursor });
      for (const each of answer.data) node.children.push({ ...each, level: node.level + 1, parent: node, position: node.children.length + 1, open: false, leaf: !each.children, children: [], cursor: null, done: false, loading: false, error: null, loaded: false });
      node.cursor = answer.meta?.cursor ?? null;
      node.done = !answer.meta?.hasnext;
      node.loaded = true;
      this.countAgain({ topic, limit: PART, cursor }, answer.data, node, FIRST_LOOK);
    } catch (error) {
      node.error = error;
    }
    node.loading = false;
    this.busy -= 1;
    this.arrange();
  }

  /** Take the figures of large nodes when the broker has counted them, which it does after its first answer. */
  countAgain(call, rows, node, wait) {
    if (wait > LAST_LOOK || rows.every((each) => each.exact !== false)) return;
    setTimeout(async () => {
      if (this.over) return;
      let answer;
      try {
        answer = await get("/mqtt/retainer/tree", call);
      } catch {
        return;  // the figures before stay, with their mark
      }
      const found = new Map(answer.data.map((each) => [each.name, each]));
      for (const child of node.children) {
        const { count, bytes, newest, exact } = found.get(child.name) ?? child;
        Object.assign(child, { count, bytes, newest, exact });
      }
      this.draw();
      this.countAgain(call, answer.data, node, 2 * wait);
    }, wait);
  }

  /** Load what the messages of these nodes begin with, once: they are those in view. */
  async loadValues(nodes) {
    const groups = new Map();
    for (const node of nodes) {
      if (!node.has_message || node.value !== undefined) continue;
      node.value = null;  // asked for
      groups.set(node.parent, [...(groups.get(node.parent) ?? []), node]);
    }
    for (const [parent, wanted] of groups) {
      const first = parent.children.indexOf(wanted[0]);
      const last = parent.children.indexOf(wanted.at(-1));
      const limit = parent.children.slice(first, last + 1).filter((each) => each.has_message).length;
      const topic = parent === this.root ? "+" : `${parent.topic}/+`;
      let answer;
      try {
        answer = await get("/mqtt/retainer/messages", { topic, limit, cursor: parent.children[first - 1]?.topic, beginning: BEGINNING });
      } catch {
        continue;  // the tree is complete without values, and the topic itself tells what is wrong
      }
      const found = new Map(answer.data.map((each) => [each.topic, each]));
      for (const node of wanted) {
        const row = found.get(node.topic);
        if (row?.beginning !== undefined) node.value = preview(bytesIn(row.beginning), row.size);
      }
      this.draw();
    }
  }

  async open(node) {
    if (node.leaf) return;
    node.open = true;
    if (node.loaded) this.arrange();
    else await this.load(node);
  }

  close(node) {
    node.open = false;
    this.arrange();
  }

  /** Load everything that is open again, as a new tree. */
  async refresh() {
    const fresh = new Nodes();
    const again = async (before, node) => {
      await fresh.load(node);
      for (const child of node.children) {
        const old = before.children.find((each) => each.name === child.name);
        if (old?.open && !child.leaf) { child.open = true; await again(old, child); }
      }
    };
    this.busy += 1;
    this.draw();
    await again(this.root, fresh.root);
    this.over = true;
    return fresh;
  }

  /** Open the way to a topic, as far as its levels are in the loaded parts. Return the last node of the way. */
  async reveal(topic) {
    this.busy += 1;
    try {
      return await this.way(topic);
    } finally {
      this.busy -= 1;
      this.arrange();
    }
  }

  async way(topic) {
    let node = this.root;
    for (const name of topic.split("/")) {
      if (!node.loaded) await this.load(node);
      const next = node.children.find((each) => each.name === name);
      if (!next) return node === this.root ? null : node;
      if (next.topic === topic) return next;
      next.open = true;
      node = next;
    }
    return node;
  }

  /** List the visible rows: nodes, and one row for what is not loaded yet of each open node. */
  arrange() {
    const rows = [];
    const stack = [[this.root, 0]];
    while (stack.length) {  // without recursion: a topic may have thousands of levels
      const top = stack[stack.length - 1];
      const [node, at] = top;
      if (at < node.children.length) {
        const child = node.children[at];
        top[1] += 1;
        rows.push({ node: child, setsize: node.done ? node.children.length : -1 });
        if (child.open) stack.push([child, 0]);
        continue;
      }
      if (!node.done || node.error) rows.push({ more: node });
      stack.pop();
    }
    this.rows = rows;
    this.draw();
  }
}
