// Yjs judges many small documents. Usage: node judge-fuzz.mjs DIRECTORY SEED
// DIRECTORY holds SEED.logs, a log of logs, and, in the same order, SEED.merged and SEED.reset: the one
// update that each became, or none where it was left alone. Prints one line per failure,
// names the document's number in it, and exits 1 if there is any.
import { join } from 'node:path'
import * as Y from 'yjs'
import { builtAtOnce, contentOf, deletionsOf, difference, rootTypes, stateOf, unlike } from './document.mjs'
import { editAll, typed } from './edit.mjs'
import { parseLog, readLog } from './log.mjs'
import { shown } from './shown.mjs'

// Client ids that no document has.
const [FIRST, SECOND] = [2 ** 40 + 1, 2 ** 40 + 2]
// Every so many documents are edited on, which takes longer than all else.
const EDITED_EVERY = 3

const sync = (a, b) => {
  for (let round = 0; round < 3; round++) {
    Y.applyUpdate(b, Y.encodeStateAsUpdate(a, Y.encodeStateVector(b)))
    Y.applyUpdate(a, Y.encodeStateAsUpdate(b, Y.encodeStateVector(a)))
  }
}
// Typed before it is loaded, as editors do: a text that is typed later does not know that it
// has marks, and then Yjs remembers places in it that depend on how it was cut into items.
const make = (rows, id, types) => builtAtOnce(rows, id, doc => typed(doc, types))
const contents = (a, b) => difference(contentOf(a), contentOf(b), 'content')

const mergedIsAnother = (old, merged, edited) => {
  const [a, b] = [builtAtOnce(old, FIRST), builtAtOnce(merged, FIRST)]
  const found = unlike(a, b)
  if (found !== null || !edited) return found
  const types = rootTypes(a)
  const [kept, fresh] = [make(old, FIRST, types), make(merged, SECOND, types)]
  const control = [make(old, FIRST, types), make(old, SECOND, types)]
  for (const [first, second] of [[kept, fresh], control]) {
    editAll(first, types, 1)
    editAll(second, types, 2)
    sync(first, second)
  }
  return unlike(kept, fresh) ?? unlike(control[0], kept)
}

const resetIsAnother = (old, reset, edited) => {
  const [a, b] = [builtAtOnce(old, FIRST), builtAtOnce(reset, FIRST)]
  const found = contents(a, b)
  if (found !== null) return found
  const clients = [...stateOf(b).keys()]
  if (clients.length > 1 || clients.some(client => client >= 2 ** 32 || stateOf(a).has(client))) return `clients ${clients}`
  if (deletionsOf(b).size > 0 || b.store.pendingStructs !== null) return 'deleted or pending'
  if (!edited) return null
  const types = rootTypes(a)
  const [former, fresh] = [make(old, FIRST, types), make(reset, FIRST, types)]
  const seen = difference(shown(former, types), shown(fresh, types), 'shown')
  if (seen !== null) return seen
  for (const doc of [former, fresh]) editAll(doc, types, 3)
  return difference(shown(former, types), shown(fresh, types), 'shown')
}

const [directory, seed] = process.argv.slice(2)
const [logs, merged, reset] = ['logs', 'merged', 'reset'].map(it =>
  readLog(join(directory, `${seed}.${it}`)).map(log => parseLog(log)))
let failures = 0
logs.forEach((old, number) => {
  const edited = number % EDITED_EVERY === 0
  for (const [mode, rows, isAnother] of [['merged', merged[number], mergedIsAnother], ['reset', reset[number], resetIsAnother]]) {
    if (rows.length === 0) continue
    let found
    try { found = isAnother(old, rows, edited) } catch (error) { found = `it threw ${error.stack}` }
    if (found !== null) {
      failures++
      console.log(`seed ${seed}, document ${number}, ${mode}: ${found}`)
    }
  }
})
process.exitCode = failures > 0 || merged.length !== logs.length || reset.length !== logs.length ? 1 : 0
