// Writes update logs with Automerge, one document each, that break compaction which is not
// careful. Usage: node automerge-generate.mjs DIRECTORY
import * as A from '@automerge/automerge'
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { writeLog } from './log.mjs'

const directory = process.argv[2]
mkdirSync(directory, { recursive: true })

// A replica that records what it makes (not what it receives).
class Replica {
  constructor (n) {
    this.doc = A.init({ actor: n.toString(16).padStart(32, '0') })
    this.rows = []
  }

  change (edit, options = { time: 0 }) {
    this.doc = A.change(this.doc, options, edit)
    const row = A.getLastLocalChange(this.doc)
    this.rows.push(row)
    return row
  }

  receive (...rows) {
    this.doc = A.applyChanges(this.doc, rows)[0]
  }
}
const alone = (...edits) => {
  const replica = new Replica(1)
  edits.forEach(edit => replica.change(edit))
  return replica.rows
}
// Two who know the same, then each on its own.
const apart = (start, ...edits) => {
  const [a, b] = [new Replica(1), new Replica(2)]
  a.change(start)
  b.receive(...a.rows)
  edits.forEach((edit, n) => [a, b][n % 2].change(edit))
  return [...a.rows, ...b.rows]
}
const text = content => draft => { draft.t = content }
const mark = (start, end, expand, name, value) => draft => A.mark(draft, ['t'], { start, end, expand }, name, value)
const unmark = (start, end, expand, name) => draft => A.unmark(draft, ['t'], { start, end, expand }, name)
const splice = (at, gone, come) => draft => A.splice(draft, ['t'], at, gone, come)
const values = list => alone(draft => {
  list.forEach((value, i) => { draft[`k${i}`] = value })
  draft.list = list
  draft.nested = { deep: [{ list }] }
})

const cases = {
  integers: () => values([0, 1, -1, 63, 64, 2 ** 31 - 1, 2 ** 31, -(2 ** 31), 2 ** 32, 2 ** 53 - 1, -(2 ** 53) + 1, new A.Uint(0), new A.Uint(2 ** 53 - 1), new A.Int(5)]),
  floats: () => values([1.5, 0.1, 1e300, -1e-300, Number.MIN_VALUE, Infinity, -Infinity, new A.Float64(1), new A.Float64(2 ** 53)]),
  nothing: () => values([null, '', [], {}, false, true, new Uint8Array(0)]),
  binary: () => values([new Uint8Array([0, 255, 1]), new Uint8Array(300)]),
  times: () => values([new Date(0), new Date(-1), new Date(8.64e15)]),
  strings: () => values(['\u0000', 'é€😀', '\uFEFFbom', 'a'.repeat(300), new A.ImmutableString('fixed'), new A.ImmutableString('')]),
  keys: () => alone(draft => {
    draft.o = { z: 1, a: 2, m: { y: 1, b: 2 }, '': 'empty key', 10: 'ten', 2: 'two', '😀': 1, '\uFFFF': 2 }
    draft[''] = 'the empty key'
  }),
  deep: () => alone(draft => {
    let value = 1
    for (let i = 0; i < 40; i++) value = i % 2 ? [value] : { v: value }
    draft.deep = value
  }),
  empty: () => alone(draft => { draft.k = 1 }, draft => { delete draft.k }),
  overwritten: () => alone(...Array.from({ length: 200 }, (_, i) => draft => { draft.k = i })),
  messages_and_times: () => {
    const replica = new Replica(1)
    replica.change(draft => { draft.k = 1 }, { time: 1700000000, message: 'first' })
    replica.change(draft => { draft.k = 2 }, { time: -5, message: '😀' })
    return replica.rows
  },
  empty_change: () => {
    const replica = new Replica(1)
    replica.change(draft => { draft.k = 1 })
    replica.doc = A.emptyChange(replica.doc, { message: 'nothing', time: 3 })
    return [...replica.rows, A.getLastLocalChange(replica.doc)]
  },
  deflated: () => alone(text('words '.repeat(200)), splice(3, 0, 'long enough to be deflated '.repeat(40))),
  // ---------------------------------------------------------------- marks
  marks_overlap: () => alone(text('hello world, hello'), mark(0, 8, 'after', 'bold', true), mark(4, 13, 'both', 'italic', true), unmark(6, 8, 'none', 'bold'), mark(2, 12, 'none', 'link', 'href'), splice(5, 0, 'XX')),
  marks_same_name: () => alone(text('hello world'), mark(0, 8, 'both', 'colour', 'red'), mark(4, 10, 'before', 'colour', 'blue'), mark(5, 6, 'after', 'colour', 'red')),
  marks_emptied: () => alone(text('abcdef'), mark(1, 3, 'both', 'bold', true), splice(1, 2, ''), splice(1, 0, 'new')),
  marks_over_nothing_left: () => alone(text('abc'), mark(0, 3, 'none', 'bold', true), splice(0, 3, ''), splice(0, 0, 'again')),
  marks_every_expansion: () => alone(text('none before after both'), mark(0, 4, 'none', 'a', 1), mark(5, 11, 'before', 'b', 2), mark(12, 17, 'after', 'c', 3), mark(18, 22, 'both', 'd', 4)),
  marks_adjacent: () => alone(text('aabbcc'), mark(0, 2, 'after', 'x', 1), mark(2, 4, 'before', 'x', 2), mark(4, 6, 'both', 'x', 3), splice(2, 0, '-'), splice(5, 0, '-')),
  marks_values: () => alone(text('values'), mark(0, 1, 'none', 'n', null), mark(1, 2, 'none', 'f', 1.5), mark(2, 3, 'none', 'b', new Uint8Array([1, 2])), mark(3, 4, 'none', 'd', new Date(9)), mark(4, 5, 'none', '', 'empty name')),
  marks_concurrent: () => apart(text('shared text'), mark(0, 6, 'after', 'bold', true), unmark(3, 9, 'both', 'bold'), splice(0, 2, ''), mark(2, 8, 'none', 'bold', 'other')),
  emptied_and_retyped: () => alone(text(''), ...Array.from({ length: 20 }, (_, i) => draft => {
    A.splice(draft, ['t'], 0, draft.t.length, `round ${i}`)
  })),
  surrogates: () => alone(text('a😀b😀c'), splice(1, 2, ''), splice(2, 0, '𝄞'), mark(0, 4, 'both', 'm', true)),
  blocks: () => alone(text('onetwo'), draft => A.splitBlock(draft, ['t'], 3, { type: new A.ImmutableString('paragraph'), parents: [], attrs: { n: 1 } }), draft => A.splitBlock(draft, ['t'], 0, { type: new A.ImmutableString('h1'), parents: [new A.ImmutableString('div')], attrs: {} }), mark(1, 6, 'both', 'bold', true), draft => A.joinBlock(draft, ['t'], 0)),
  // ---------------------------------------------------------------- history
  conflict_in_map: () => apart(draft => { draft.k = 0 }, draft => { draft.k = 1 }, draft => { draft.k = { object: true } }),
  conflict_in_list: () => apart(draft => { draft.l = [1, 2, 3] }, draft => { draft.l[1] = 'a' }, draft => { draft.l[1] = ['b'] }),
  conflict_resolved: () => {
    const rows = apart(draft => { draft.k = 0 }, draft => { draft.k = 1 }, draft => { draft.k = 2 })
    const third = new Replica(3)
    third.receive(...rows)
    third.change(draft => { draft.k = 3 })
    return [...rows, ...third.rows]
  },
  conflict_of_keys_in_deleted_object: () => apart(draft => { draft.o = { k: 0 } }, draft => { draft.o.k = 1 }, draft => { draft.o.k = 2 }, draft => { delete draft.o }),
  counters: () => apart(draft => { draft.c = new A.Counter(5); draft.l = [new A.Counter(1)] }, draft => draft.c.increment(2), draft => draft.c.decrement(4), draft => draft.l[0].increment(10), draft => draft.c.increment(7)),
  counters_in_conflict: () => apart(draft => { draft.other = 1 }, draft => { draft.c = new A.Counter(5) }, draft => { draft.c = new A.Counter(6) }, draft => draft.c.increment(2), draft => draft.c.increment(3)),
  nested_deleted: () => alone(...[1, 2, 3].map(i => draft => { draft.inner = { list: [1, 2, 3], text: `text ${i}` } }), draft => { draft.inner.list.push('more') }, draft => { delete draft.inner }, draft => { draft.kept = [{}] }),
  nested_deleted_concurrently: () => apart(draft => { draft.inner = { t: 'text' } }, draft => { delete draft.inner }, draft => A.splice(draft, ['inner', 't'], 4, 0, ' written after')),
  list_churn: () => alone(draft => { draft.l = [] }, ...Array.from({ length: 30 }, (_, i) => draft => { draft.l.splice(i % 4, i % 3 ? 1 : 0, i, [i]) })),
  undone: () => {
    const replica = new Replica(1)
    replica.change(draft => { draft.t = 'hello'; draft.m = { a: 1 } })
    const before = A.getHeads(replica.doc)
    replica.change(draft => { A.splice(draft, ['t'], 1, 3, 'other'); draft.m.a = 2 })
    const inverse = A.diff(replica.doc, A.getHeads(replica.doc), before)
    replica.change(draft => A.applyPatches(draft, inverse))
    return replica.rows
  },
  interleaved: () => apart(text('ab'), splice(1, 0, 'one '), splice(1, 0, 'two '), splice(2, 0, 'ONE'), splice(2, 0, 'TWO')),
  many_actors: () => {
    const first = new Replica(1)
    first.change(draft => { draft.l = [] })
    const rows = [...first.rows]
    for (let n = 2; n < 40; n++) {
      const replica = new Replica(n)
      replica.receive(...rows)
      replica.change(draft => { draft.l.push(n) })
      rows.push(...replica.rows)
    }
    return rows
  },
  // ---------------------------------------------------------------- rows
  document_then_changes: () => {
    const rows = apart(text('start'), splice(0, 0, 'a'), splice(5, 0, 'b'))
    const doc = A.loadIncremental(A.init(), Buffer.concat(rows))
    const next = new Replica(9)
    next.receive(...rows)
    next.change(splice(3, 1, 'next'))
    return [A.save(doc), ...next.rows]
  },
  changes_then_document: () => {
    const rows = apart(text('start'), splice(0, 0, 'a'), splice(5, 0, 'b'))
    return [...rows, A.save(A.loadIncremental(A.init(), Buffer.concat(rows)))]
  },
  two_documents: () => {
    const [a, b] = [new Replica(1), new Replica(2)]
    a.change(text('shared'))
    b.receive(...a.rows)
    a.change(splice(0, 0, 'a'))
    b.change(splice(6, 0, 'b'))
    return [A.save(a.doc), A.save(b.doc)]
  },
  concatenated: () => {
    const rows = alone(text('one'), splice(3, 0, ' two'), splice(0, 1, 'O'))
    return [Buffer.concat(rows), rows[1]]
  },
  reversed: () => alone(text('one'), splice(3, 0, ' two'), splice(0, 1, 'O'), mark(0, 3, 'both', 'bold', true)).reverse(),
  repeated: () => {
    const rows = apart(text('one'), splice(3, 0, ' two'), splice(0, 1, 'O'))
    return [...rows, ...rows, rows[0]]
  }
}

for (const [name, make] of Object.entries(cases)) writeLog(join(directory, `${name}.log`), make())
console.log(`${Object.keys(cases).length} written`)
