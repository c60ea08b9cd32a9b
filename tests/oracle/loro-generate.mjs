// Documents of every kind. Usage: node loro-generate.mjs DIRECTORY
// Writes DIRECTORY/documents.pack (see loro-judge.mjs) and prints the names, one per line.
import { LoroCounter, LoroList, LoroMap, LoroMovableList, LoroText, LoroTree, UndoManager } from 'loro-crdt'
import { join } from 'node:path'
import { replica, sync } from './loro-document.mjs'
import { editAll, editSome } from './loro-edit.mjs'
import { encodeLog, random, writeLog } from './log.mjs'

// The rows of one author, an edit each.
const alone = (...edits) => () => {
  const doc = replica(1n)
  const rows = edits.map(edit => row(doc, edit))
  return { rows, seen: [rows] }
}
const row = (doc, edit) => {
  const before = doc.oplogVersion()
  edit(doc)
  doc.commit()
  return doc.export({ mode: 'update', from: before })
}
// The rows of several who write at the same time and hear of each other now and then.
const together = (peers, rounds, edit) => () => {
  const docs = Array.from({ length: peers }, (_, nth) => replica(BigInt(nth + 1)))
  const rows = []
  for (let round = 0; round < rounds; round++) {
    docs.forEach((doc, nth) => rows.push(row(doc, () => edit(doc, nth, round))))
    if (round % 2 === 1) for (const doc of docs.slice(1)) { sync(docs[0], doc) }
    if (round % 4 === 3) for (const doc of docs.slice(1)) { sync(docs[0], doc) }
  }
  const whole = Math.floor(rows.length / (4 * peers)) * 4 * peers
  return { rows, seen: [rows, rows.slice(0, whole)] }
}
const repeat = (count, edit) => Array.from({ length: count }, (_, nth) => doc => edit(doc, nth))

const cases = {
  text_typed: alone(...repeat(60, (doc, nth) => doc.getText('text').insert(nth, 'abc é😀'[nth % 5]))),
  text_emptied_and_retyped: alone(
    doc => doc.getText('text').insert(0, 'gone'.repeat(50)), doc => doc.getText('text').delete(0, 200),
    doc => doc.getText('text').insert(0, 'again'), doc => doc.getText('text').delete(1, 2)),
  deletions_backwards: alone(
    doc => doc.getText('text').insert(0, 'x'.repeat(100)),
    ...repeat(90, doc => doc.getText('text').delete(doc.getText('text').length - 1, 1))),
  surrogates: alone(
    doc => doc.getText('text').insert(0, '😀😀😀'), doc => doc.getText('text').delete(2, 2), doc => doc.getText('text').insert(2, '\u0000é')),
  marks: alone(
    doc => doc.getText('text').insert(0, 'overlapping marks'),
    doc => doc.getText('text').mark({ start: 0, end: 9 }, 'bold', true),
    doc => doc.getText('text').mark({ start: 4, end: 14 }, 'link', 'a'),
    doc => doc.getText('text').mark({ start: 5, end: 8 }, 'note', -0.5),
    doc => doc.getText('text').unmark({ start: 2, end: 6 }, 'bold'),
    doc => doc.getText('text').delete(3, 8),
    doc => doc.getText('text').insert(3, 'in between')),
  marks_without_text: alone(
    doc => doc.getText('text').insert(0, 'marked'), doc => doc.getText('text').mark({ start: 0, end: 6 }, 'bold', { b: 1, a: null }),
    doc => doc.getText('text').delete(0, 6), doc => doc.getText('text').insert(0, 'x')),
  numbers: alone(...[0, 1, 0.1, NaN, Infinity, -Infinity, 2 ** 31, -(2 ** 31) - 1, 2 ** 53 - 1, 2 ** 53, 5e-324].map((value, nth) => doc => {
    doc.getMap('map').set(`${nth}`, value)
    doc.getList('list').push(value)
    doc.getMovableList('movable').push({ [nth]: [value] })
  })),
  keys: alone(doc => {
    for (const key of ['', '\u0000', 'b', 'a', '__proto__', '10', '9', 'é', '😀']) doc.getMap('map').set(key, { [key]: key, b: 1, a: 2 })
  }),
  values: alone(doc => {
    for (const value of [null, undefined, true, '', '\u0000', new Uint8Array([]), new Uint8Array([0, 1]), [], {}, [[], {}]]) doc.getList('list').push(value)
  }),
  map_overwritten: alone(...repeat(200, (doc, nth) => doc.getMap('map').set('key', nth))),
  map_deleted: alone(doc => doc.getMap('map').set('a', 1), doc => doc.getMap('map').delete('a'), doc => doc.getMap('map').set('b', null)),
  movable: alone(
    doc => [1, 2, 3, 4, 5].forEach(value => doc.getMovableList('movable').push(value)),
    ...repeat(30, (doc, nth) => doc.getMovableList('movable').move(nth % 5, (nth * 3) % 5)),
    doc => doc.getMovableList('movable').set(2, 'set'), doc => doc.getMovableList('movable').delete(0, 2)),
  tree: alone(
    doc => { const tree = doc.getTree('tree'); const a = tree.createNode(); a.createNode().data.set('x', 1); tree.createNode(a.id).data.setContainer('t', new LoroText()).insert(0, 'in a tree') },
    doc => { const [a] = doc.getTree('tree').roots(); doc.getTree('tree').move(a.children()[1].id, undefined, 0) },
    doc => { const [, a] = doc.getTree('tree').roots(); doc.getTree('tree').delete(a.id) },
    ...repeat(20, doc => doc.getTree('tree').createNode(undefined, 0))),
  counters: alone(...repeat(20, (doc, nth) => doc.getCounter('counter').increment(nth % 3 - 0.5))),
  nested: alone(doc => {
    const list = doc.getMap('map').setContainer('list', new LoroList())
    const movable = list.insertContainer(0, new LoroMovableList())
    const map = movable.insertContainer(0, new LoroMap())
    map.setContainer('', new LoroText()).insert(0, 'deep')
    map.setContainer('counter', new LoroCounter()).increment(2)
    map.setContainer('tree', new LoroTree()).createNode().data.set('deep', true)
  }, doc => doc.getMap('map').get('list').insert(0, 'before'), doc => doc.getMap('map').get('list').get(1).get(0).get('').insert(2, '—')),
  nested_deleted: alone(doc => doc.getMap('map').setContainer('a', new LoroMap()).setContainer('b', new LoroText()).insert(0, 'text'),
    doc => doc.getMap('map').delete('a'), doc => doc.getMap('map').setContainer('a', new LoroMap()).set('b', 2)),
  mergeable: alone(doc => { doc.getMap('map').ensureMergeableText('text').insert(0, 'mergeable') }, doc => { doc.getMap('map').ensureMergeableList('list').push(1) }),
  roots_of_one_name: alone(doc => { doc.getText('x').insert(0, 'text'); doc.getMap('x').set('k', 1); doc.getList('x').push(2); doc.getCounter('x').increment(3) }),
  root_names: alone(doc => { for (const name of ['a', 'a:Text', '😀', ' ', 'cid']) doc.getText(name).insert(0, name) }),
  messages_and_times: () => {
    const doc = replica(1n)
    const rows = [0, 1, 2, 3].map(nth => {
      const before = doc.oplogVersion()
      doc.getText('text').insert(0, `${nth}`)
      doc.commit({ message: nth % 2 === 0 ? `message ${nth}` : undefined, timestamp: 1_700_000_000 + nth * 5_000 })
      return doc.export({ mode: 'update', from: before })
    })
    return { rows, seen: [rows.slice(0, 3)] }
  },
  undone: () => {
    const doc = replica(1n)
    const undo = new UndoManager(doc, { mergeInterval: 0 })
    const rows = Array.from({ length: 12 }, (_, nth) => row(doc, () => {
      doc.getText('text').insert(0, `edit ${nth}`)
      doc.getMap('map').setContainer('child', new LoroText()).insert(0, 'child')
    }))
    for (let nth = 0; nth < 5; nth++) rows.push(row(doc, () => undo.undo()))
    rows.push(row(doc, () => undo.redo()))
    return { rows, seen: [rows.slice(0, 14)] }
  },
  independent: () => {
    const rows = [1n, 2n, 3n].map(peer => row(replica(peer), doc => doc.getText('text').insert(0, `by ${peer}`)))
    return { rows, seen: [rows, rows.slice(0, 2)] }
  },
  two_heads: () => {
    const base = replica(1n)
    const rows = repeat(20, (doc, nth) => doc.getText('text').insert(0, `${nth} `)).map(edit => row(base, edit))
    const branches = [2n, 3n].map(peer => { const doc = replica(peer); sync(base, doc); return doc })
    for (const doc of branches) rows.push(row(doc, () => editAll(doc, random(Number(doc.peerId)))))
    return { rows, seen: [rows.slice(0, 20)] }
  },
  a_snapshot_and_more: () => {
    const doc = replica(1n)
    for (let nth = 0; nth < 30; nth++) row(doc, () => editSome(doc, random(nth), 2))
    const rows = [doc.export({ mode: 'snapshot' })]
    rows.push(row(doc, () => editAll(doc, random(1))))
    return { rows, seen: [rows] }
  },
  trimmed_before: () => {
    const doc = replica(1n)
    for (let nth = 0; nth < 30; nth++) row(doc, () => editSome(doc, random(nth), 2))
    const rows = [doc.export({ mode: 'shallow-snapshot', frontiers: doc.frontiers() })]
    for (let nth = 0; nth < 20; nth++) rows.push(row(doc, () => editSome(doc, random(nth), 2)))
    return { rows, seen: [rows, rows.slice(0, 10)] }
  },
  high_peers: () => {
    const rows = [2n ** 64n - 2n, 2n ** 63n, 2n ** 53n + 1n].map(peer => row(replica(peer), doc => doc.getMap('map').set(`${peer}`, String(peer))))
    return { rows, seen: [] }
  },
  typing_at_once: together(2, 12, (doc, nth, round) => {
    const text = doc.getText('text')
    text.insert(Math.min(text.length, 3 * nth), `${nth}${round} `)
    if (text.length > 12) text.delete(1, 4)
  }),
  marking_at_once: together(3, 8, (doc, nth, round) => {
    const text = doc.getText('text')
    text.insert(0, 'marked text ')
    text.mark({ start: nth, end: 6 + nth }, ['bold', 'link', 'note'][round % 3], round)
    if (round % 2 === 1) text.unmark({ start: 2, end: 4 }, 'bold')
  }),
  moving_at_once: together(3, 8, (doc, nth, round) => {
    const list = doc.getMovableList('movable')
    list.insert(0, `${nth} ${round}`)
    if (list.length > 2) { list.move(0, list.length - 1); list.set(1, round); list.delete(list.length - 1, 1) }
    const tree = doc.getTree('tree')
    const nodes = tree.getNodes({ withDeleted: false }).map(node => node.id).sort()
    const node = tree.createNode()
    if (nodes.length > 1) { try { tree.move(nodes[0], node.id); tree.delete(nodes[1]) } catch (error) { if (!/delet|exist|cycl/i.test(String(error))) throw error } }
  }),
  everything_at_once: together(3, 12, (doc, nth, round) => editSome(doc, random(100 * nth + round), 4))
}

const [directory] = process.argv.slice(2)
const entries = []
for (const [name, write] of Object.entries(cases)) {
  const { rows, seen } = write()
  entries.push(encodeLog(rows), encodeLog(seen.map(encodeLog)))
  console.log(name)
}
writeLog(join(directory, 'documents.pack'), entries)
