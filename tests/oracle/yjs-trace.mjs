// Replays editing traces with Yjs. Usage: node yjs-trace.mjs DIRECTORY FILE.json.gz...
// Writes DIRECTORY/NAME.log, an update per transaction in the order of the trace, and
// DIRECTORY/NAME.txt, the text that every replica ends with.
import { readFileSync, writeFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import * as Y from 'yjs'
import { writeLog } from './log.mjs'

const FIRST_CLIENT = 0x1dea0001

// The offset in UTF-16 units of a position in characters.
const offset = (text, characters) => {
  let at = 0
  for (let left = characters; left > 0; left--) at += text.codePointAt(at) > 0xffff ? 2 : 1
  return at
}

const replay = trace => {
  const sequential = trace.kind !== 'concurrent'
  const wide = trace.txns.some(t => t.patches.some(p => /[\ud800-\udfff]/.test(p[2])))
  // An author is a client id; where an agent has not seen its own last transaction, it goes
  // on as another one.
  const authors = []
  const author = agent => {
    const doc = new Y.Doc()
    doc.clientID = FIRST_CLIENT + authors.length
    const it = { agent, doc, sent: [], has: [], last: null }
    doc.on('update', (update, origin) => { if (origin !== 'remote') it.last = update })
    authors.push(it)
    return it
  }
  const count = (version, number) => version[number] ?? 0
  const rows = []
  const carryOut = (number, patches) => {
    const it = authors[number]
    const text = it.doc.getText('text')
    it.last = null
    it.doc.transact(() => {
      for (const [position, deleted, inserted] of patches) {
        const shown = wide ? text.toString() : ''
        const from = wide ? offset(shown, position) : position
        const to = wide ? offset(shown, position + deleted) : position + deleted
        if (to > from) text.delete(from, to - from)
        if (inserted !== '') text.insert(from, inserted)
      }
    })
    // A transaction that changes nothing sends nothing; its place is kept.
    const update = it.last ?? new Uint8Array([0, 0])
    it.sent.push(rows.length)
    rows.push(update)
    it.has[number] = it.sent.length
  }
  const after = []
  let root = []
  if (trace.startContent) {
    author(0)
    carryOut(0, [[0, 0, trace.startContent]])
    root = [1]
  }
  trace.txns.forEach((transaction, index) => {
    const parents = sequential ? [index - 1].filter(i => i >= 0) : transaction.parents
    const before = [...root]
    for (const parent of parents) {
      after[parent].forEach((n, number) => { before[number] = Math.max(count(before, number), n ?? 0) })
    }
    const agent = transaction.agent ?? 0
    let number = authors.findIndex((it, n) => it.agent === agent && count(before, n) === it.sent.length)
    if (number < 0) { author(agent); number = authors.length - 1 }
    const it = authors[number]
    const missing = authors.flatMap((other, n) => other.sent.slice(count(it.has, n), count(before, n))).sort((a, b) => a - b)
    for (const row of missing) Y.applyUpdate(it.doc, rows[row], 'remote')
    it.has = before.map(n => n ?? 0)
    carryOut(number, transaction.patches)
    after[index] = [...it.has]
  })
  return rows
}

const [directory, ...files] = process.argv.slice(2)
for (const file of files) {
  const name = basename(file, '.json.gz')
  const trace = JSON.parse(gunzipSync(readFileSync(file)))
  const rows = replay(trace)
  const reader = new Y.Doc()
  for (const row of rows) Y.applyUpdate(reader, row)
  if (reader.getText('text').toString() !== trace.endContent) throw new Error(`${name}: another text`)
  writeLog(join(directory, `${name}.log`), rows)
  writeFileSync(join(directory, `${name}.txt`), trace.endContent)
}
