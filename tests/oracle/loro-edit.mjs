// Edits of whatever a Loro document holds: the same numbers make the same edits on equal
// documents.
import { LoroCounter, LoroList, LoroMap, LoroMovableList, LoroText, LoroTree } from 'loro-crdt'
import { roots } from './loro-document.mjs'

const VALUES = [
  0, -0, 1, -1, 0.1, NaN, Infinity, -Infinity, 2 ** 31 - 1, 2 ** 31, -(2 ** 31) - 1, 2 ** 53 - 1, 2 ** 53, -(2 ** 53) + 1, 1e300,
  5e-324, null, true, false, '', '\u0000', 'a', 'é😀', new Uint8Array([]), new Uint8Array([0, 255]), [], {},
  [1, [-0, { '': NaN }]], { b: 1, a: { c: [null, -0] }, '': '' }
]
const WORDS = ['a', 'Z ', 'é', '😀', '\u0000', 'word ', '\n', '👩‍👩‍👧']
const MARKS = [['bold', true], ['bold', null], ['link', 'https://example.org'], ['link', null], ['note', 1.5], ['note', -0], ['before', { b: 1, a: -0 }]]
const CHILDREN = [LoroText, LoroMap, LoroList, LoroMovableList, LoroTree, LoroCounter]
const DEPTH_MAX = 3

// Positions count UTF-16 units, and must not be inside of a pair.
const at = (text, pick) => {
  const string = text.toString()
  const from = pick(string.length + 1)
  const unit = string.charCodeAt(from)
  return unit >= 0xdc00 && unit <= 0xdfff ? from - 1 : from
}
const range = (text, pick) => [at(text, pick), at(text, pick)].sort((a, b) => a - b)

const edits = {
  Text: (text, pick) => {
    const [start, end] = range(text, pick)
    const what = pick(8)
    if (what < 4 || start === end) text.insert(start, WORDS[pick(WORDS.length)])
    else if (what < 6) text.delete(start, end - start)
    else {
      const [key, value] = MARKS[pick(MARKS.length)]
      if (value === null) text.unmark({ start, end }, key)
      else text.mark({ start, end }, key, value)
    }
  },
  Map: (map, pick, depth) => {
    const key = `k${pick(4)}`
    const what = pick(6)
    if (what === 0) map.delete(key)
    else if (what === 1 && depth < DEPTH_MAX) map.setContainer(key, new CHILDREN[pick(CHILDREN.length)]())
    else map.set(key, VALUES[pick(VALUES.length)])
  },
  List: (list, pick, depth) => {
    const what = pick(6)
    if (what < 2 && list.length > 0) list.delete(pick(list.length), 1)
    else if (what === 2 && depth < DEPTH_MAX) list.insertContainer(pick(list.length + 1), new CHILDREN[pick(CHILDREN.length)]())
    else list.insert(pick(list.length + 1), VALUES[pick(VALUES.length)])
  },
  MovableList: (list, pick, depth) => {
    const what = pick(8)
    if (what < 2 && list.length > 0) list.delete(pick(list.length), 1)
    else if (what < 4 && list.length > 0) list.move(pick(list.length), pick(list.length))
    else if (what === 4 && list.length > 0) list.set(pick(list.length), VALUES[pick(VALUES.length)])
    else if (what === 5 && depth < DEPTH_MAX) list.insertContainer(pick(list.length + 1), new CHILDREN[pick(CHILDREN.length)]())
    else list.insert(pick(list.length + 1), VALUES[pick(VALUES.length)])
  },
  Tree: (tree, pick) => {
    const nodes = tree.getNodes({ withDeleted: false }).map(node => node.id).sort()
    const what = pick(6)
    if (what < 2 || nodes.length === 0) tree.createNode(nodes.length > 0 && pick(2) === 0 ? nodes[pick(nodes.length)] : undefined)
    else if (what === 2) tree.delete(nodes[pick(nodes.length)])
    else if (what === 3) tree.getNodeByID(nodes[pick(nodes.length)]).data.set(`k${pick(3)}`, VALUES[pick(VALUES.length)])
    else {
      // Into a node below itself is refused.
      try { tree.move(nodes[pick(nodes.length)], pick(3) === 0 ? undefined : nodes[pick(nodes.length)]) } catch (error) {
        if (!/cycl/i.test(String(error))) throw error
      }
    }
  },
  Counter: (counter, pick) => counter.increment([1, -2, 0.5, 4][pick(4)])
}

const children = container => {
  switch (container.kind()) {
    case 'Map': return container.entries().sort(([a], [b]) => (a < b ? -1 : 1)).map(([, value]) => value)
    case 'List': case 'MovableList': return container.toArray()
    case 'Tree': return container.getNodes({ withDeleted: false }).sort((a, b) => (a.id < b.id ? -1 : 1)).map(node => node.data)
    default: return []
  }
}
const all = (containers, depth = 0) => containers.filter(it => it !== null && typeof it === 'object' && typeof it.kind === 'function')
  .flatMap(it => [{ container: it, depth }, ...all(children(it), depth + 1)])

export const pickOf = rand => n => Math.floor(rand() * n)

// The roots that documents are written in.
export const rooted = doc => [
  doc.getText('text'), doc.getMap('map'), doc.getList('list'), doc.getMovableList('movable'), doc.getTree('tree'), doc.getCounter('counter')
]

// So many edits anywhere.
export const editSome = (doc, rand, count) => {
  const pick = pickOf(rand)
  for (let nth = 0; nth < count; nth++) {
    const places = all(rooted(doc))
    const { container, depth } = places[pick(places.length)]
    edits[container.kind()](container, pick, depth)
  }
  doc.commit()
}

// A few edits of everything there is.
export const editAll = (doc, rand) => {
  const pick = pickOf(rand)
  for (const { container, depth } of all([...roots(doc), doc.getText('new')])) {
    for (let nth = 0; nth < 2; nth++) {
      // An edit before may have deleted it.
      try { edits[container.kind()](container, pick, depth) } catch (error) {
        if (!/is deleted/.test(String(error))) throw error
      }
    }
  }
  doc.commit()
}
