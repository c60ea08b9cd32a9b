// Writes update logs with Yjs, one document each, that break compaction which is not
// careful. Usage: node generate.mjs DIRECTORY
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import * as Y from 'yjs'
import { random, writeLog } from './log.mjs'

const directory = process.argv[2]
mkdirSync(directory, { recursive: true })

// A replica that records what it makes (not what it receives).
const replica = (clientID, options = {}) => {
  const doc = new Y.Doc(options)
  doc.clientID = clientID
  const updates = []
  doc.on('update', (update, origin) => { if (origin !== 'remote') updates.push(update) })
  return { doc, updates, text: doc.getText('t'), map: doc.getMap('m'), array: doc.getArray('a') }
}
const receive = (to, ...updates) => updates.forEach(update => Y.applyUpdate(to.doc, update, 'remote'))
const alone = (edit, options) => {
  const r = replica(7, options)
  edit(r)
  return r.updates
}
// Values at the places that encode them differently.
const values = list => alone(({ array, map, text }) => {
  list.forEach((value, i) => map.set(`k${i}`, value))
  // A list takes neither at its top; inside of a value it does.
  array.push(list.filter(value => value !== undefined && typeof value !== 'bigint'))
  map.set('nested', { list, deep: [{ list }] })
  text.insert(0, 'marked')
})
const full = doc => Y.encodeStateAsUpdate(doc)
const bytes = (...parts) => Uint8Array.from(parts.flatMap(p => (typeof p === 'string' ? [...Buffer.from(p)] : [p])))

// ------------------------------------------------------------------ values
const cases = {
  zero: () => values([0, -0]),
  not_a_number: () => values([NaN, Infinity, -Infinity]),
  integers: () => values([1, -1, 63, 64, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 32, 2 ** 53 - 1, 2 ** 53, -(2 ** 53) + 1]),
  floats: () => values([1.5, 0.1, 1e300, -1e-300, Number.MIN_VALUE, 3.4028234663852886e38]),
  bigints: () => values([5n, -5n, 2n ** 63n - 1n, -(2n ** 63n)]),
  nothing: () => values([null, undefined, '', [], {}]),
  binary: () => alone(({ map, array }) => {
    map.set('b', new Uint8Array([0, 255, 1]))
    map.set('empty', new Uint8Array(0))
    array.push([new Uint8Array([7]), { inside: new Uint8Array([8]) }])
  }),
  strings: () => values(['\u0000', 'é€😀', '\ud83d', '\ude00x', '\uFEFFbom', 'a'.repeat(300)]),
  key_order: () => alone(({ map, array }) => {
    map.set('o', { z: 1, a: 2, m: { y: 1, b: 2 }, '': 'empty key', 10: 'ten', 2: 'two' })
    array.push([{ b: 1, a: 1 }, { a: 1, b: 1 }])
    map.set('', 'the empty key')
    map.set('o2', { q: [], p: {} })
  }),
  embeds: () => alone(({ text }) => {
    text.insert(0, 'ab')
    text.insertEmbed(1, { z: 1, a: -0, n: 1e21, s: '\u2028' })
    text.insertEmbed(0, { image: 'x', width: 1.0 }, { z: { y: 1, x: 2 } })
  }),
  embed_half_a_pair: () => alone(({ text }) => {
    text.insert(0, 'ab')
    text.insertEmbed(1, { half: '\ud83d', '\ude00': 'key' })
    text.format(0, 1, { mark: '\udfff' })
  }),
  deep: () => alone(({ map }) => {
    let value = 1
    for (let i = 0; i < 40; i++) value = i % 2 ? [value] : { v: value }
    map.set('deep', value)
    map.set('other', 1)
  }),
  // No writer of JavaScript makes these: payloads of NaN, and 1 as an integer, a single and a
  // double. The bytes have to stay; Yjs can only say that the numbers have.
  not_a_number_payloads: () => [
    bytes(1, 1, 7, 0, 0x08, 1, 1, 'a', 3,
      123, 0x7f, 0xf8, 0, 0, 0, 0, 0, 1, 123, 0xff, 0xf4, 0, 0, 0, 0, 0xab, 0xcd, 124, 0x7f, 0xc0, 0, 9, 0),
    bytes(1, 1, 7, 3, 0x88, 7, 2, 3, 125, 1, 124, 0x3f, 0x80, 0, 0, 123, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 0)
  ],
  integers_at_the_edge: () => values([2 ** 53 + 2, -(2 ** 53) - 2, 2 ** 31 + 1, -(2 ** 31) - 1, 2n ** 53n + 1n, -(2n ** 53n) - 1n, 0n]),
  zero_characters: () => alone(({ text, map }) => {
    text.insert(0, 'a\u0000b')
    text.insert(2, '\u0000', { '\u0000': '\u0000' })
    text.delete(1, 1)
    map.set('\u0000', '\u0000')
  }),
  // ---------------------------------------------------------------- marks
  marks_with_numbers: () => alone(({ text }) => {
    text.insert(0, 'numbers')
    text.format(0, 3, { a: -0, b: 1e21, c: 1.5, d: 0.1 + 0.2 })
    text.format(2, 4, { o: { z: 1, a: [-0, null, 2 ** 53] }, b: null })
    text.format(4, 3, { '': '', e: false })
  }),
  marks_overlap: () => alone(({ text }) => {
    text.insert(0, 'hello world, hello')
    text.format(0, 8, { bold: true })
    text.format(4, 9, { italic: true })
    text.format(6, 2, { bold: null })
    text.format(2, 10, { link: { href: 'h', a: 1, title: null } })
    text.insert(5, 'XX', { bold: true, italic: null })
  }),
  marks_dangling: () => alone(({ text }) => {
    text.insert(0, 'abc', { bold: true })
    text.delete(0, 3)
    text.insert(0, 'd', { bold: null })
    text.format(0, 1, { color: 'red' })
    text.delete(0, 1)
    text.insert(0, 'again')
  }),
  marks_concurrent: () => {
    const [a, b] = [replica(1), replica(2)]
    a.text.insert(0, 'shared text')
    receive(b, ...a.updates)
    a.text.format(0, 6, { bold: true })
    b.text.format(3, 8, { bold: null, italic: true })
    b.text.delete(0, 2)
    const rows = [...a.updates, ...b.updates]
    receive(a, ...b.updates)
    a.text.insert(3, 'after', { bold: false })
    return [...rows, a.updates.at(-1)]
  },
  emptied_and_retyped: () => alone(({ text }) => {
    for (let i = 0; i < 20; i++) {
      text.insert(0, `round ${i}`)
      text.delete(0, text.length)
    }
    text.insert(0, 'last')
  }),
  // ----------------------------------------------------------- surrogates
  pairs_whole: () => alone(({ text }) => {
    text.insert(0, 'a😀b😀c')
    text.delete(1, 2)
    text.insert(2, '𝄞')
    text.insert(0, '🎈')
  }),
  pair_half_deleted: () => alone(({ text }) => {
    text.insert(0, 'a😀b')
    text.delete(2, 1)
  }),
  pair_split_by_insert: () => alone(({ text }) => {
    text.insert(0, 'a😀b')
    text.insert(2, 'x')
  }),
  pair_half_deleted_before_more: () => {
    const [a, b] = [replica(1), replica(2)]
    a.text.insert(0, '😀😁😂🤣')
    receive(b, ...a.updates)
    // The first half of one, the second of the next, and both around two whole ones.
    a.text.delete(0, 1)
    a.text.delete(2, 1)
    b.text.delete(5, 2)
    const rows = [...a.updates, ...b.updates]
    receive(a, ...b.updates)
    a.text.insert(3, 'x')
    a.map.set('k', '😀')
    a.map.set('k', '😁')
    return [...rows, ...a.updates.slice(-3)]
  },
  pair_split_by_two: () => {
    const [a, b] = [replica(1), replica(2)]
    a.text.insert(0, 'a😀b')
    receive(b, ...a.updates)
    a.text.insert(2, 'x')
    b.text.format(0, 2, { bold: true })
    b.text.delete(1, 1)
    return [...a.updates, ...b.updates]
  },
  halves_alone: () => alone(({ text, array }) => {
    text.insert(0, '\ud83d')
    text.insert(1, '\ude00')
    text.insert(1, '\udc00\ud800')
    array.push(['\ud83d', '\ude00'])
  }),
  pair_split_then_deleted: () => alone(({ text }) => {
    text.insert(0, 'a😀b')
    text.delete(2, 1)
    text.delete(1, 1)
  }),
  // ---------------------------------------------------------------- types
  xml: () => alone(({ doc }) => {
    const fragment = doc.getXmlFragment('x')
    const p = new Y.XmlElement('p')
    p.setAttribute('class', 'c')
    p.setAttribute('object', { z: 1, a: 2 })
    fragment.insert(0, [p, new Y.XmlText('tail')])
    const inner = new Y.XmlText('inside')
    p.insert(0, [inner])
    inner.format(0, 3, { em: { level: 2, a: 1 } })
    p.setAttribute('class', 'd')
    p.removeAttribute('object')
    fragment.insert(1, [new Y.XmlElement('gone')])
    fragment.delete(1, 1)
  }),
  xml_hook: () => alone(({ doc }) => {
    const fragment = doc.getXmlFragment('x')
    fragment.insert(0, [new Y.XmlHook('hook')])
    fragment.get(0).set('k', 1)
    fragment.insert(0, [new Y.XmlElement('p')])
  }),
  nested: () => alone(({ map, array }) => {
    const inner = new Y.Map()
    map.set('inner', inner)
    const list = new Y.Array()
    inner.set('list', list)
    list.push([1, new Y.Text('deep'), { plain: true }])
    array.push([new Y.Map(), new Y.Array()])
    array.get(0).set('x', new Y.Text('y'))
    list.delete(0, 1)
  }),
  nested_deleted: () => alone(({ map, array }) => {
    for (let i = 0; i < 5; i++) {
      const inner = new Y.Map()
      map.set('inner', inner)
      inner.set('list', Y.Array.from([1, 2, 3]))
      inner.get('list').push(['more'])
      inner.set('text', new Y.Text('text'))
      inner.get('text').insert(2, 'in')
    }
    map.delete('inner')
    array.push([new Y.Text('kept')])
  }),
  nested_deleted_concurrently: () => {
    const [a, b] = [replica(1), replica(2)]
    a.map.set('inner', new Y.Map())
    a.map.get('inner').set('t', new Y.Text('text'))
    receive(b, ...a.updates)
    const before = a.updates.length
    a.map.delete('inner')
    b.map.get('inner').get('t').insert(4, ' written after')
    b.map.get('inner').set('u', new Y.Array())
    b.map.get('inner').get('u').push([1, 2])
    b.text.insert(0, 'alive')
    return [...a.updates.slice(0, before), ...a.updates.slice(before), ...b.updates]
  },
  subdocuments: () => alone(({ map, array }) => {
    map.set('plain', new Y.Doc({ guid: 'g1' }))
    map.set('meta', new Y.Doc({ guid: 'g2', meta: { z: 1, a: 2 }, autoLoad: true, gc: false }))
    array.push([new Y.Doc({ guid: 'g3', meta: 'text' })])
    map.set('plain', 1)
  }),
  untyped_root: () => {
    const r = replica(7)
    r.doc.getText('never read').insert(0, 'abc')
    r.doc.getMap('neither').set('k', { b: 1, a: 2 })
    return r.updates
  },
  one_root_two_types: () => {
    const [a, b] = [replica(1), replica(2)]
    a.doc.getArray('r').push([1, 2])
    b.doc.getMap('r').set('k', 'v')
    b.doc.getMap('r').set('k', 'w')
    return [...a.updates, ...b.updates]
  },
  json_content: () => [
    // Yjs before 13 wrote JSON texts; no writer is left, every reader is.
    bytes(1, 1, 7, 0, 0x02, 1, 1, 'a', 3, 7, '{"a":1}', 9, 'undefined', 2, '-0', 0),
    bytes(1, 1, 7, 3, 0x88, 7, 2, 1, 119, 1, 'x', 0)
  ],
  json_content_deleted: () => [
    bytes(1, 1, 7, 0, 0x02, 1, 1, 'a', 3, 7, '{"a":1}', 9, 'undefined', 2, '-0', 0),
    bytes(1, 1, 7, 3, 0x82, 7, 2, 2, 1, '1', 4, 'null', 1, 7, 1, 1, 1),
    bytes(1, 1, 9, 0, 0xc2, 7, 0, 7, 1, 1, 3, '"x"', 1, 7, 1, 4, 1),
    bytes(1, 1, 9, 1, 0x22, 1, 1, 'm', 1, 'k', 1, 4, 'true', 0)
  ],
  xml_hook_deleted: () => {
    const [a, b] = [replica(1), replica(2)]
    const fragment = a.doc.getXmlFragment('x')
    fragment.insert(0, [new Y.XmlHook('one'), new Y.XmlHook('two'), new Y.XmlElement('p')])
    fragment.get(0).set('k', { z: -0, a: 1n })
    receive(b, ...a.updates)
    const before = a.updates.length
    fragment.delete(0, 1)
    b.doc.getXmlFragment('x').get(0).set('late', new Y.Text('into what is deleted'))
    b.doc.getXmlFragment('x').get(1).set('k', new Y.XmlHook('inner'))
    return [...a.updates.slice(0, before), ...b.updates, ...a.updates.slice(before)]
  },
  embedded_types: () => alone(({ text, map }) => {
    text.insert(0, 'ab')
    text.insertEmbed(1, new Y.Map([['k', -0]]), { bold: true })
    text.insertEmbed(0, new Y.XmlText('inside'))
    text.insertEmbed(3, new Y.Array())
    text.delete(0, 1)
    map.set('t', new Y.Text('nested'))
    map.get('t').insertEmbed(2, new Y.Text('deeper'))
    map.get('t').format(0, 4, { bold: true })
  }),
  // ----------------------------------------------------------------- maps
  map_churn: () => alone(({ map }) => {
    for (let i = 0; i < 200; i++) map.set('k', i)
  }),
  map_concurrent: () => {
    const replicas = [replica(1), replica(2), replica(3)]
    const rows = []
    const rand = random(5)
    for (let round = 0; round < 30; round++) {
      for (const r of replicas) {
        const key = `k${Math.floor(rand() * 3)}`
        if (rand() < 0.2) r.map.delete(key)
        else r.map.set(key, rand() < 0.3 ? new Y.Array() : round)
        if (rand() < 0.4) {
          rows.push(...r.updates.splice(0))
          for (const to of replicas) if (to !== r) receive(to, ...rows)
        }
      }
    }
    return [...rows, ...replicas.flatMap(r => r.updates)]
  },
  map_losers: () => {
    // Nobody but the integration deletes the losing entries.
    const rows = []
    for (const id of [9, 3, 5, 1]) {
      const r = replica(id)
      r.map.set('k', `by ${id}`)
      r.map.set('own', new Y.Text(`text of ${id}`))
      rows.push(...r.updates)
    }
    return rows
  },
  // ------------------------------------------------------------ histories
  undo: () => {
    const r = replica(7)
    const manager = new Y.UndoManager([r.text, r.map], { captureTimeout: 0 })
    r.text.insert(0, 'abc')
    r.map.set('k', 1)
    r.text.delete(1, 1)
    r.map.set('k', { v: 2, a: 1 })
    for (let i = 0; i < 4; i++) manager.undo()
    for (let i = 0; i < 3; i++) manager.redo()
    manager.undo()
    r.text.insert(0, 'z')
    return r.updates
  },
  undo_between_authors: () => {
    const [a, b] = [replica(1), replica(2)]
    const manager = new Y.UndoManager(a.text, { captureTimeout: 0 })
    const rows = []
    const exchange = () => {
      const [fromA, fromB] = [a.updates.splice(0), b.updates.splice(0)]
      rows.push(...fromA, ...fromB)
      receive(a, ...fromB)
      receive(b, ...fromA)
    }
    for (let i = 0; i < 12; i++) {
      a.text.insert(a.text.length, `a${i} `)
      exchange()
      b.text.delete(0, Math.min(2, b.text.length))
      if (i % 3 === 0) manager.undo()
      if (i % 4 === 0) manager.redo()
      exchange()
    }
    return rows
  },
  gc_off: () => alone(({ text, map }) => {
    text.insert(0, 'kept for ever')
    text.delete(0, 5)
    map.set('k', 'old')
    map.set('k', 'new')
  }, { gc: false }),
  gc_off_full_state: () => {
    const r = replica(7, { gc: false })
    r.text.insert(0, 'kept for ever')
    r.text.delete(0, 5)
    const state = full(r.doc)
    r.updates.length = 0
    r.map.set('k', 1)
    return [state, ...r.updates]
  },
  // ----------------------------------------------------------------- rows
  rows_repeated: () => {
    const rows = alone(({ text }) => { for (let i = 0; i < 30; i++) text.insert(i >> 1, `${i}`) })
    return rows.flatMap((row, i) => (i % 3 ? [row] : [row, row])).concat(rows)
  },
  rows_reordered: () => {
    const rows = alone(({ text }) => { for (let i = 0; i < 30; i++) text.insert(i >> 1, `${i}`) })
    return rows.reverse()
  },
  rows_and_full_states: () => {
    const r = replica(7)
    const rows = []
    for (let i = 0; i < 40; i++) {
      r.text.insert(i % 7, `é${i}`)
      if (i % 5 === 4) r.text.delete(i % 3, 4)
      r.map.set('k', i)
      if (i % 8 === 7) rows.push(...r.updates.splice(0), full(r.doc))
    }
    return rows
  },
  rows_empty: () => alone(({ text }) => text.insert(0, 'a')).concat([bytes(0, 0), bytes(0, 0)]),
  rows_missing_then_filled: () => {
    const rows = alone(({ text }) => { for (let i = 0; i < 6; i++) text.insert(0, `${i}`) })
    return [rows[0], ...rows.slice(2), rows[1]]
  },
  deletion_before_its_unit: () => {
    const rows = alone(({ text }) => { text.insert(0, 'a'); text.insert(1, 'b'); text.delete(1, 1); text.insert(1, 'c') })
    return [rows[0], rows[2], rows[3], rows[1]]
  },
  filled_by_a_full_state: () => {
    const r = replica(7)
    for (let i = 0; i < 9; i++) { r.text.insert(i >> 1, `${i}`); r.map.set('k', i) }
    const rows = r.updates.filter((_, i) => i % 3 !== 1)
    return [...rows, full(r.doc)]
  },
  moved_to_and_fro: () => {
    // Insertions at one place, before and after, by authors who do not know of each other.
    const authors = [5, 3, 9, 2 ** 53 - 1].map(id => replica(id))
    authors[0].text.insert(0, '<>')
    for (const r of authors.slice(1)) receive(r, ...authors[0].updates)
    for (let i = 0; i < 6; i++) {
      for (const r of authors) r.text.insert(i % 2 ? 1 : 1 + i, `${r.doc.clientID % 10}${i}`)
      for (const r of authors) r.array.insert(0, [`${r.doc.clientID % 10}${i}`])
    }
    const rows = authors.flatMap(r => r.updates)
    for (const r of authors) receive(r, ...rows)
    authors[2].text.delete(3, 9)
    return [...rows, authors[2].updates.at(-1)]
  },
  client_largest: () => {
    const r = replica(2 ** 53 - 1)
    r.text.insert(0, 'abc')
    r.text.delete(1, 1)
    return r.updates
  },
  client_zero: () => {
    const r = replica(0)
    r.text.insert(0, 'abc')
    r.text.insert(1, 'x')
    return r.updates
  },
  many_clients: () => {
    const rows = []
    const server = new Y.Doc()
    for (let id = 1; id <= 40; id++) {
      const r = replica(id * 1000003 % 65537)
      receive(r, full(server))
      r.text.insert(Math.min(id % 5, r.text.length), `<${id}>`)
      if (r.text.length > 20) r.text.delete(id % 7, 3)
      r.updates.forEach(update => Y.applyUpdate(server, update))
      rows.push(...r.updates)
    }
    return rows
  },
  // --------------------------------------------------------- broken logs
  hole_independent: () => {
    const rows = alone(({ text, map }) => { text.insert(0, 'a'); map.set('x', 1); map.set('y', 2) })
    return [rows[0], rows[2]]
  },
  hole_dependent: () => {
    const rows = alone(({ text }) => { text.insert(0, 'a'); text.insert(1, 'b'); text.insert(2, 'c') })
    return [rows[0], rows[2]]
  },
  hole_delete_only: () => {
    const rows = alone(({ text }) => { text.insert(0, 'a'); text.insert(1, 'b'); text.delete(1, 1) })
    return [rows[0], rows[2]]
  },
  missing_author: () => {
    const [a, b] = [replica(1), replica(2)]
    a.text.insert(0, 'abc')
    receive(b, ...a.updates)
    b.text.insert(1, 'x')
    return b.updates
  },
  client_reused: () => {
    const [a, b] = [replica(9), replica(9)]
    a.text.insert(0, 'one')
    b.text.insert(0, 'two')
    return [...a.updates, ...b.updates]
  },
  version_2_row: () => {
    const r = replica(7)
    r.text.insert(0, 'abc')
    return [...r.updates, Y.encodeStateAsUpdateV2(r.doc)]
  },
  unknown_content: () => [bytes(1, 1, 7, 0, 0x0b, 1, 1, 't', 1, 0)],
  // Yjs parses what it reads, and throws: the rest of such a row never arrives.
  embed_no_json: () => [
    bytes(1, 1, 7, 0, 0x05, 1, 1, 't', 4, '{"a"', 0),
    bytes(1, 1, 7, 1, 0x84, 7, 0, 1, 'x', 0)
  ],
  mark_no_json: () => [bytes(1, 1, 7, 0, 0x06, 1, 1, 't', 1, 'b', 4, 'True', 0)],
  subdocument_no_options: () => [bytes(1, 1, 7, 0, 0x09, 1, 1, 'a', 1, 'g', 126, 0)],
  truncated: () => {
    const rows = alone(({ text }) => { text.insert(0, 'a'); text.insert(1, 'b') })
    return [rows[0], rows[1].slice(0, -1)]
  }
}

// Several authors, sometimes offline, on all kinds of content.
const session = seed => {
  const rand = random(seed)
  const pick = n => Math.floor(rand() * n)
  const authors = [replica(11 + seed), replica(500 + seed), replica(3 + seed)]
  const seen = authors.map(() => 0)
  const rows = []
  const edit = ({ doc, text, map, array }) => {
    const fragment = doc.getXmlFragment('x')
    switch (pick(12)) {
      case 0: case 1: case 2: return text.insert(pick(text.length + 1), ['x', 'yé', '€z ', 'word '][pick(4)])
      case 3: if (text.length > 2) text.delete(pick(text.length - 2), 1 + pick(2)); return
      case 4: if (text.length > 4) text.format(pick(text.length - 3), 3, { bold: rand() < 0.5 ? true : null }); return
      case 5: return map.set(`k${pick(4)}`, [pick(9), { b: pick(9), a: -0 }, 'v', null][pick(4)])
      case 6: return map.delete(`k${pick(4)}`)
      case 7: return array.insert(pick(array.length + 1), [pick(100), { z: 1, a: [NaN] }])
      case 8: if (array.length > 0) array.delete(pick(array.length), 1); return
      case 9: return map.set(`n${pick(2)}`, new Y.Map([['t', new Y.Text('nested')], ['l', new Y.Array()]]))
      case 10: {
        const inner = map.get(`n${pick(2)}`)
        if (inner instanceof Y.Map) { inner.get('t').insert(0, 'i'); inner.get('l').push([pick(5)]) }
        return
      }
      default: return fragment.insert(pick(fragment.length + 1), [new Y.XmlElement('p'), new Y.XmlText('q')])
    }
  }
  for (let step = 0; step < 400; step++) {
    const n = pick(authors.length)
    const author = authors[n]
    author.doc.transact(() => { for (let i = pick(3); i >= 0; i--) edit(author) })
    if (rand() < 0.3) {
      rows.push(...author.updates.splice(0))
      receive(author, ...rows.slice(seen[n]))
      seen[n] = rows.length
    }
  }
  return [...rows, ...authors.flatMap(author => author.updates)]
}
for (let seed = 1; seed <= 12; seed++) cases[`session_${seed}`] = () => session(seed)

for (const [name, make] of Object.entries(cases)) writeLog(join(directory, `${name}.log`), make())
