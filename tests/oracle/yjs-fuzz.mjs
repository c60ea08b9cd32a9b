// Random documents, written by Yjs. Usage: node yjs-fuzz.mjs SEED COUNT DIRECTORY
// Writes the logs of COUNT documents to DIRECTORY/SEED.logs, a log of logs; document N depends
// on SEED and N alone.
//
// Several replicas, some with an undo manager, edit text with marks and embeds, nested maps,
// lists, texts and XML, and delete again, mostly offline from each other. Some keep what they
// delete, some draw odd client ids, some cut pairs of surrogates; rows come twice, in another
// order, or as a full state.
import { join } from 'node:path'
import * as Y from 'yjs'
import { encodeLog, random, writeLog } from './log.mjs'

const VALUES = [0, -0, 1.5, -1, 2 ** 31, 2 ** 53, 1e21, NaN, Infinity, 5n, -(2n ** 62n), true, null, '', 'v', '\u0000', 'é€',
  { z: 1, a: -0, '': [NaN] }, [1, [2, { b: 1, a: 2n }]], new Uint8Array([0, 255])]
const MARKS = [{ b: true }, { b: null }, { i: { z: 1, a: -0 } }, { i: null }, { b: true, i: null }, { c: 'red' }, { c: null, b: false }]
const WORDS = ['x', 'ab', 'yé', '€z ', 'word ', '\n', 'a longer run of text, ']
const PAIRS = ['😀', 'a😀b', '𝄞𝄞']

class Author {
  constructor (clientID, gc, { rand, pairs, hooks }) {
    this.rand = rand
    this.hooks = hooks
    this.words = pairs ? [...WORDS, ...PAIRS] : WORDS
    this.doc = new Y.Doc({ gc })
    this.doc.clientID = clientID
    this.sent = []
    this.seen = 0
    this.doc.on('update', (update, origin) => { if (origin !== 'remote') this.sent.push(update) })
    this.roots = [this.doc.getText('t'), this.doc.getMap('m'), this.doc.getArray('a'), this.doc.getXmlFragment('x')]
    // It keeps what it could bring back from being collected.
    this.undo = rand() < 0.6 ? null : new Y.UndoManager(this.roots, { captureTimeout: rand() < 0.5 ? 0 : 500, trackedOrigins: new Set([null]) })
  }

  pick (n) { return Math.floor(this.rand() * n) }
  of (list) { return list[this.pick(list.length)] }
  value () { return this.of(VALUES) }

  // A list takes no BigInt at its top; a mark none at all.
  element () {
    const value = this.value()
    return typeof value === 'bigint' ? { value } : value
  }

  nested () {
    switch (this.pick(6)) {
      case 0: return new Y.Map([['k', this.value()]])
      case 1: return Y.Array.from([this.element(), this.element()])
      case 2: return new Y.XmlElement(this.of(['p', 'h1']))
      case 3: return new Y.XmlText('xml')
      case 4: return this.hooks ? new Y.XmlHook('hook') : new Y.Doc({ guid: `g${this.pick(9)}`, meta: { z: 1, a: 2 } })
      default: return new Y.Text('nested')
    }
  }

  // Some shared type that can be reached.
  target () {
    let type = this.of(this.roots)
    while (this.rand() < 0.6) {
      const inner = []
      for (let item = type._start; item !== null; item = item.right) if (!item.deleted && item.content.getRef() === 7) inner.push(item.content.type)
      for (const item of type._map.values()) if (!item.deleted && item.content.getRef() === 7) inner.push(item.content.type)
      if (inner.length === 0) break
      type = this.of(inner)
    }
    return type
  }

  edit () {
    const type = this.target()
    if (type instanceof Y.Text) this.editText(type)
    else if (type instanceof Y.Map) this.editKeys((k, v) => type.set(k, v), k => type.delete(k))
    else if (type instanceof Y.Array) this.editList(type, () => this.rand() < 0.3 ? [this.nested()] : [this.element(), this.element()].slice(this.pick(2)))
    else if (this.rand() < 0.5 && type instanceof Y.XmlElement) this.editKeys((k, v) => type.setAttribute(k, v), k => type.removeAttribute(k))
    else this.editList(type, () => [this.of([new Y.XmlElement('p'), new Y.XmlText('text'), this.hooks ? new Y.XmlHook('h') : new Y.XmlElement('q')])])
  }

  editText (text) {
    const at = this.pick(text.length + 1)
    switch (this.pick(8)) {
      case 0: case 1: return text.insert(at, this.of(this.words))
      case 2: return text.insert(at, this.of(this.words), this.of(MARKS))
      case 3: case 4: if (at < text.length) text.delete(at, Math.min(text.length - at, 1 + this.pick(5))); return
      case 5: if (at < text.length) text.format(at, Math.min(text.length - at, 1 + this.pick(6)), this.of(MARKS)); return
      case 6: if (text.length > 0 && this.rand() < 0.3) text.delete(0, text.length); return
      default: return text.insertEmbed(at, this.rand() < 0.3 ? new Y.Map() : { z: this.pick(3), a: -0 }, this.rand() < 0.5 ? this.of(MARKS) : {})
    }
  }

  editKeys (set, remove) {
    const key = this.of(['k', 'l', '', 'm', 'n'])
    if (this.rand() < 0.25) remove(key)
    else set(key, this.rand() < 0.3 ? this.nested() : this.value())
  }

  editList (list, make) {
    if (list.length > 0 && this.rand() < 0.35) {
      const at = this.pick(list.length)
      list.delete(at, Math.min(list.length - at, 1 + this.pick(2)))
    } else list.insert(this.pick(list.length + 1), make())
  }

  step () {
    const choice = this.rand()
    if (choice < 0.08) this.undo?.undo()
    else if (choice < 0.12) this.undo?.redo()
    else this.doc.transact(() => { for (let i = this.pick(3); i >= 0; i--) this.edit() })
  }
}

const log = (seed, number) => {
  const rand = random(Math.imul(seed, 1000003) + number)
  const pick = n => Math.floor(rand() * n)
  const style = { rand, pairs: rand() < 0.06, hooks: rand() < 0.08 }
  const gc = rand() < 0.85
  const ids = new Set()
  for (let n = 1 + pick(4); n > 0; n--) ids.add([pick(50), pick(2 ** 32), 2 ** 53 - 1 - pick(3)][rand() < 0.5 ? 1 : rand() < 0.8 ? 0 : 2])
  const authors = [...ids].map(id => new Author(id, gc, style))
  const rows = []
  for (let steps = 5 + pick(60); steps > 0; steps--) {
    const author = authors[pick(authors.length)]
    author.step()
    if (rand() < 0.25) {
      rows.push(...author.sent.splice(0))
      for (const row of rows.slice(author.seen)) Y.applyUpdate(author.doc, row, 'remote')
      author.seen = rows.length
      // To receive can be to write: marks that have become redundant are removed.
      if (rand() < 0.05) { rows.push(Y.encodeStateAsUpdate(author.doc)); author.sent.length = 0 }
    }
  }
  for (const author of authors) rows.push(...author.sent)
  if (rand() < 0.1) rows.push(rows[pick(rows.length)])
  if (rand() < 0.1) rows.sort(() => rand() - 0.5)
  for (const author of authors) author.doc.destroy()
  return rows
}

const [seed, count, directory] = process.argv.slice(2)
const logs = []
for (let number = 0; number < Number(count); number++) logs.push(encodeLog(log(Number(seed), number)))
writeLog(join(directory, `${seed}.logs`), logs)
